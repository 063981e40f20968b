//! What a scope does on a device: stores there, kernels on their tiles, and copies from and to the host.

use std::marker::PhantomData;

use super::args::{Append, PartsOf, Target};
use super::bodies::Reduced;
use super::body::{Body, PartMaker};
use super::draft::{Mode, Use, Used};
use super::kernels::{Downloaded, Launched, PartsByKernel};
use super::place::Queued;
use super::scalar::{Operator, Scalar};
use super::scope::Scope;
use super::store::{DeviceStore, OnDevice, Shape, Space, Store};
use crate::device::{DeviceStream, Element};
use crate::error::BoxError;
use crate::graph::Reads;
use crate::name::Name;
use crate::value::args::KernelFn;

#[cfg(doc)]
use super::device_tile::{DeviceTile, DeviceTileMut, Parts};
#[cfg(doc)]
use super::tile::{Tile, TileMut};

impl Scope {
    /// Adds a store whose tiles are on the device that runs the graph: on a GPU, or on the host if there is
    /// no other device.
    ///
    /// [`upload`](Scope::upload) brings a store there, and [`download`](Scope::download) back. Kernels read
    /// and write it: [`write_kernel`](Scope::write_kernel), [`update_kernel`](Scope::update_kernel),
    /// [`fold_kernel`](Scope::fold_kernel). Their closures get a stream, and for each thing that is read: a
    /// [`DeviceTile`] of a store on the device, a [`Tile`] of one on the host, `&T` of a scalar or a value;
    /// and behind these the [`DeviceTileMut`] that is written. They enqueue work on the stream, and do not
    /// wait for it. For rules that hold for all kernels, see [`DeviceStream`].
    ///
    /// # Examples
    /// ```
    /// use anabranch::device::{In, Kernel, Launch, Out};
    /// use anabranch::scope::{DeviceTile, DeviceTileMut, Streaming, Sum, Tile, TileMut};
    /// use anabranch::{DeviceStream, Executor, Graph, inputs};
    ///
    /// const CODE: &str = r#"extern "C" __global__ void twice(const float* x, float* y, unsigned n) {
    ///     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ///     if (i < n) y[i] = 2.0f * x[i];
    /// }"#;
    /// // SAFETY: these are its parameters. A thread reads x[i] and writes y[i], i below n, their length.
    /// let twice = unsafe { Kernel::<(In<f32>, Out<f32>, u32)>::cuda_c("twice", CODE) }
    ///     .twin(|_, (x, y, n)| (0..n as usize).for_each(|i| y[i] = 2.0 * x[i]));
    ///
    /// const N: usize = 1_000_000;
    /// let mut g = Graph::new();
    /// let total = g.scope("twice", Streaming::strict().memory_max(400_000), |s| {
    ///     let (a, b) = (s.store("a", [N]), s.store("b", [N]));
    ///     let (x, y) = (s.device_store("x", [N]), s.device_store("y", [N]));
    ///     s.write("fill", (), &a, |mut a: TileMut<f32, 1>| a.fill(1.0));
    ///     s.upload("up", &a, &x);
    ///     s.write_kernel("twice", &x, &y, move |s: &mut DeviceStream, x: DeviceTile<f32, 1>, mut y: DeviceTileMut<f32, 1>| {
    ///         let n = x.len();
    ///         Ok(s.launch(&twice, Launch::for_len(n), (&x, &mut y, n as u32))?)
    ///     });
    ///     s.download("down", &y, &b);
    ///     s.fold("sum", &b, Sum, |b: Tile<f32, 1>| b.as_slice().iter().map(|&b| f64::from(b)).sum::<f64>())
    /// });
    /// g.output("total", &total);
    ///
    /// let exec = Executor::host()?; // or Executor::cuda(0)?
    /// let mut outputs = futures::executor::block_on(exec.run(&g.compile()?, inputs! {}))?;
    /// assert_eq!(*outputs.take::<f64>("total")?, 2.0 * N as f64);
    /// # Ok::<(), anabranch::Error>(())
    /// ```
    pub fn device_store<T, const N: usize>(&mut self, name: impl Into<Name>, shape: [usize; N]) -> DeviceStore<T, N>
    where
        T: Element,
    {
        self.add_store(name.into(), shape)
    }

    /// Adds a kernel that writes a store on the device: all its elements, a tile in each batch.
    ///
    /// # Errors
    /// An error of `work` fails the scope: the error names the operation and its tile. An error that the
    /// driver reports behind it, or the device, fails the scope, too.
    pub fn write_kernel<T, const N: usize, I, F>(&mut self, name: impl Into<Name>, reads: I, target: &DeviceStore<T, N>, work: F)
    where
        T: Element,
        I: Reads<Queued, Params: Append<Target<T, N, OnDevice>>>,
        F: KernelFn<Queued, DeviceStream, <I::Params as Append<Target<T, N, OnDevice>>>::Out, Result<(), BoxError>>,
    {
        self.add_kernel(name.into(), reads, target, Mode::Write, work);
    }

    /// Adds a kernel that changes a store on the device, and returns the changed one, as
    /// [`update`](Scope::update) does.
    ///
    /// # Errors
    /// As for [`write_kernel`](Scope::write_kernel).
    #[must_use = "the store that was given has the old elements"]
    pub fn update_kernel<T, const N: usize, I, F>(
        &mut self,
        name: impl Into<Name>,
        reads: I,
        store: &DeviceStore<T, N>,
        work: F,
    ) -> DeviceStore<T, N>
    where
        T: Element,
        I: Reads<Queued, Params: Append<Target<T, N, OnDevice>>>,
        F: KernelFn<Queued, DeviceStream, <I::Params as Append<Target<T, N, OnDevice>>>::Out, Result<(), BoxError>>,
    {
        let name = name.into();
        let target = self.updated(&name, store);
        self.add_kernel(name, reads, &target, Mode::Update, work);
        target
    }

    fn add_kernel<T, const N: usize, I, F>(&mut self, name: Name, reads: I, target: &DeviceStore<T, N>, mode: Mode, work: F)
    where
        T: Element,
        I: Reads<Queued, Params: Append<Target<T, N, OnDevice>>>,
        F: KernelFn<Queued, DeviceStream, <I::Params as Append<Target<T, N, OnDevice>>>::Out, Result<(), BoxError>>,
    {
        let mut uses = self.draft.begin(&name);
        let params = reads.bind(&mut uses);
        let params = params.append(Target::new(uses.store(target, Shape::own(N), mode)));
        uses.end(Body::Kernel(Box::new(Launched { params, work })));
    }

    /// Adds a reduction by a kernel, as [`fold`](Scope::fold): `work` makes a value of each leaf of a tile,
    /// in the [`Parts`] that it gets behind what it reads. They are copied to the host, and `operator`
    /// combines them there.
    ///
    /// # Errors
    /// As for [`write_kernel`](Scope::write_kernel).
    pub fn fold_kernel<A, I, O, F>(&mut self, name: impl Into<Name>, reads: I, operator: O, work: F) -> Scalar<A>
    where
        A: Element,
        I: Reads<Queued, Params: Append<PartsOf<A>>>,
        O: Operator<A>,
        F: KernelFn<Queued, DeviceStream, <I::Params as Append<PartsOf<A>>>::Out, Result<(), BoxError>>,
    {
        let name = name.into();
        self.check_element::<A>(&format!("the parts of reduction '{name}'"));
        let scalar = self.draft.add_scalar::<A>(&name);
        let mut uses = self.draft.begin(&name);
        let params = reads.bind(&mut uses).append(PartsOf::new());
        uses.add(Use { of: Used::Scalar(scalar.index), mode: Mode::Reduce(operator.name()), shape: Shape::own(1) });
        let fold = Reduced { operator, scalar: scalar.index, value: PhantomData };
        let maker = PartsByKernel::<_, _, A> { params, work, value: PhantomData };
        uses.end(Body::Fold(Box::new(fold), PartMaker::Kernel(Box::new(maker))));
        scalar
    }

    /// Copies a store to one of the same shape on the device, tile by tile.
    ///
    /// # Errors
    /// If the device has no memory for the copy.
    pub fn upload<T, const N: usize>(&mut self, name: impl Into<Name>, from: &Store<T, N>, to: &DeviceStore<T, N>)
    where
        T: Element,
    {
        let name = name.into();
        self.check_shapes(&name, from, to);
        self.write_kernel(
            name,
            from,
            to,
            |s: &mut DeviceStream, from: super::Tile<'_, T, N>, mut to: super::DeviceTileMut<'_, T, N>| {
                Ok(s.upload_to(from.as_slice(), &mut to)?)
            },
        );
    }

    /// Copies a store on the device to one of the same shape on the host, tile by tile.
    ///
    /// # Errors
    /// If the host has no memory for the copy.
    pub fn download<T, const N: usize>(&mut self, name: impl Into<Name>, from: &DeviceStore<T, N>, to: &Store<T, N>)
    where
        T: Element,
    {
        let name = name.into();
        self.check_shapes(&name, from, to);
        let mut uses = self.draft.begin(&name);
        let from = uses.store(from, Shape::own(N), Mode::Read);
        let to = uses.store(to, Shape::own(N), Mode::Write);
        uses.end(Body::Kernel(Box::new(Downloaded::<T, N> { from, to, element: PhantomData })));
    }
    /// Checks that a copy is of a store to one of the same shape.
    fn check_shapes<T, const N: usize, A, B>(&mut self, name: &Name, from: &Store<T, N, A>, to: &Store<T, N, B>)
    where
        T: Element,
        A: Space,
        B: Space,
    {
        if !self.draft.owns(from) || !self.draft.owns(to) {
            // The uses of the copy say it.
            return;
        }
        let [from, to] = [from.index, to.index].map(|store| &self.draft.stores[store as usize]);
        if from.extents != to.extents {
            let shapes = format!("store '{}', {:?}, to store '{}', {:?}", from.name, from.extents, to.name, to.extents);
            self.draft.fault(format!("operation '{name}' copies {shapes}: let both have one shape"));
        }
    }
}
