//! Arrays, tiles and buffers as the types of other libraries: of `ndarray`, and of DLPack.

use anabranch::scope::{Array, Streaming, Tile, TileMut};
use anabranch::{Buffer, DeviceStream, Executor, Graph, HostBuffer, Inputs};
use dlpark::ffi::{DLDataType, DLDevice};
use dlpark::versioned::Dlpack;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, array, s};

use crate::support::{block_on, value_of};

#[test]
fn tiles_are_views_of_ndarray_and_arrays_are_its_arrays() {
    let mut g = Graph::new();
    let x = g.input::<Array<f64, 2>>("x");
    let y = g.scope("rows", Streaming::strict().over_decompose_factor(4), |s| {
        let (a, b, c) = (s.store("a", [40, 3]), s.store("b", [40, 3]), s.store("c", [40, 3]));
        s.write("in", &x, &a, |x: &Array<f64, 2>, mut a: TileMut<f64, 2>| {
            let rows = a.range(0);
            ArrayViewMut2::from(&mut a).assign(&ArrayView2::from(x).slice(s![rows, ..]));
        });
        s.write("normalise", &a, &b, |a: Tile<f64, 2>, mut b: TileMut<f64, 2>| {
            let a = ArrayView2::from(a);
            ArrayViewMut2::from(&mut b).assign(&(&a / &a.sum_axis(Axis(1)).insert_axis(Axis(1))));
        });
        // The written elements are read, too.
        s.write("twice", &b, &c, |b: Tile<f64, 2>, mut c: TileMut<f64, 2>| {
            ArrayViewMut2::from(&mut c).assign(&ArrayView2::from(b));
            let sum = ArrayView2::from(&c).sum();
            ArrayViewMut2::from(&mut c).mapv_inplace(|c| c * 2.0 + 0.0 * sum);
        });
        s.keep(&c)
    });
    g.output("y", &y);
    let x = ndarray::Array2::from_shape_fn((40, 3), |(i, j)| (1 + i * 3 + j) as f64);
    let expected = 2.0 * &x / &x.sum_axis(Axis(1)).insert_axis(Axis(1));
    let exec = Executor::builder().workers(2).build().unwrap();
    let run = exec.run(&g.compile().unwrap(), Inputs::new().with("x", Array::from(x)));
    let y = value_of::<Array<f64, 2>>(block_on(run), "y");
    assert_eq!(ArrayView2::from(&*y), expected);
    assert_eq!(ndarray::Array2::from((*y).clone()), expected);
}

// Seen to fail with elements in the order of memory, and with a part that keeps the elements before it.
#[test]
fn arrays_of_ndarray_in_any_layout_become_arrays_in_row_major_order() {
    let x = array![[1, 2, 3], [4, 5, 6]];
    let address = x.as_ptr();
    let same = Array::from(x.clone());
    assert_eq!((same.shape(), same.as_slice()), ([2, 3], &[1, 2, 3, 4, 5, 6][..]));
    let transposed = Array::from(x.clone().reversed_axes());
    assert_eq!((transposed.shape(), transposed.as_slice()), ([3, 2], &[1, 4, 2, 5, 3, 6][..]));
    let part = Array::from(x.clone().slice_move(s![1.., ..]));
    assert_eq!((part.shape(), part.as_slice()), ([1, 3], &[4, 5, 6][..]));
    let empty = Array::from(x.clone().slice_move(s![..0, ..]));
    assert_eq!((empty.shape(), empty.as_slice().len()), ([0, 3], 0));
    let moved = Array::from(x);
    assert_eq!(moved.as_slice().as_ptr(), address, "it is not copied");
}

#[test]
fn arrays_are_tensors_without_a_copy() {
    let array = Array::new([2, 3], vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let address = array.as_slice().as_ptr();
    let tensor = Dlpack::from(array);
    let seen = tensor.validate().unwrap();
    assert_eq!((seen.shape(), seen.strides()), (&[2, 3][..], Some(&[3, 1][..])));
    assert_eq!((seen.device(), seen.dtype()), (DLDevice::CPU, DLDataType::F32));
    // SAFETY: the tensor was made from an array with this number of elements.
    let elements = unsafe { seen.cpu_slice::<f32>() }.unwrap();
    assert_eq!((elements, elements.as_ptr()), (&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], address));
}

#[test]
fn buffers_of_a_host_are_tensors_with_one_axis() {
    let mut g = Graph::new();
    let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[7_i64, 8, 9])?));
    let down = g.try_kernel("down", &x, |s: &mut DeviceStream, x: &Buffer<i64>| Ok(s.download(x)?));
    g.output("x", &x);
    g.output("down", &down);
    let mut outputs = block_on(Executor::inline().run(&g.compile().unwrap(), Inputs::new())).unwrap();
    let x = std::sync::Arc::into_inner(outputs.take::<Buffer<i64>>("x").unwrap()).unwrap();
    let down = std::sync::Arc::into_inner(outputs.take::<HostBuffer<i64>>("down").unwrap()).unwrap();
    for tensor in [Dlpack::try_from(x).unwrap(), Dlpack::try_from(down).unwrap()] {
        let seen = tensor.validate().unwrap();
        assert_eq!((seen.shape(), seen.dtype()), (&[3][..], DLDataType::I64));
        // SAFETY: the tensor was made from a buffer with this number of elements.
        assert_eq!(unsafe { seen.cpu_slice::<i64>() }.unwrap(), [7, 8, 9]);
    }
}

#[test]
fn a_buffer_of_a_simulated_device_is_refused() {
    let mut g = Graph::new();
    let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[7_i64, 8, 9])?));
    g.output("x", &x);
    let exec = Executor::sim(1);
    let mut outputs = block_on(exec.run(&g.compile().unwrap(), Inputs::new())).unwrap();
    let x = std::sync::Arc::into_inner(outputs.take::<Buffer<i64>>("x").unwrap()).unwrap();
    let refused = Dlpack::try_from(x).err().expect("it is simulated");
    assert!(refused.error().to_string().contains("run the graph on a host or a GPU"), "{}", refused.error());
    assert_eq!(refused.into_inner().len(), 3);
}
