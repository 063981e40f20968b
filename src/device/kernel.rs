//! Kernels: code for a GPU, and its twin for a host. The types of the parameters bind both to the arguments
//! of a launch.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::buffer::Element;
use super::code::{Code, Launch, Text};
use super::queue::{Arg, MemoryArg};
use super::slice::BufferSlice;
use crate::error::{How, Kind, Result};

/// A kernel with the parameters `P`, a tuple of up to eight [`In`], [`Out`] and numbers (integers of 8 to 64
/// bits, `f32`, `f64`): code for a GPU, and a twin that computes the same on a host.
///
/// It is cheap to clone. Its code is compiled when it is first launched on a device. Nothing checks that the
/// code has these parameters, or that it stays within its buffers: faulty code can write anywhere the device
/// can, which includes the host's memory. So making a kernel is `unsafe` and takes a promise; launching it is
/// safe.
///
/// ```
/// use anabranch::device::{In, Kernel, Launch, Out};
/// use anabranch::{Buffer, DeviceStream, Graph};
///
/// const CODE: &str = r#"extern "C" __global__ void scale(const float* x, float* y, float by, unsigned n) {
///     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
///     if (i < n) y[i] = by * x[i];
/// }"#;
/// // SAFETY: these are its parameters. A thread reads x[i] and writes y[i], for an i below n, which is their length.
/// let scale = unsafe { Kernel::<(In<f32>, Out<f32>, f32, u32)>::cuda_c("scale", CODE) }
///     .twin(|_, (x, y, by, n)| (0..n as usize).for_each(|i| y[i] = by * x[i]));
///
/// # let mut g = Graph::new();
/// # let x = g.try_kernel("x", (), |s: &mut DeviceStream| Ok(s.upload(&[1.0_f32, 2.0])?));
/// let y = g.try_kernel("half", &x, move |s: &mut DeviceStream, x: &Buffer<f32>| {
///     let mut y = s.alloc(x.len())?;
///     s.launch(&scale, Launch::for_len(x.len()), (x, &mut y, 0.5, x.len() as u32))?;
///     Ok(y)
/// });
/// # g.output("y", &y);
/// # futures::executor::block_on(anabranch::Executor::inline().run(&g.compile()?, anabranch::Inputs::new()))?;
/// # Ok::<(), anabranch::Error>(())
/// ```
pub struct Kernel<P: Params> {
    code: Arc<Code>,
    twin: Option<Arc<Twin<P>>>,
}

type Twin<P> = dyn Fn(&Launch, <P as Params>::Host<'_>) + Send + Sync;

impl<P: Params> Kernel<P> {
    /// Returns a kernel written in CUDA C, compiled on first use by NVRTC: the function `name`, which must be
    /// `extern "C"`. NVRTC fuses multiplications and additions, so the last bits may differ from those of a
    /// twin.
    ///
    /// # Safety
    /// The caller promises of the code, for every launch of the kernel and of its clones:
    /// - The function has as many parameters as `P`, in this order and of these types: a pointer to `T` for
    ///   [`In<T>`](In) and [`Out<T>`](Out), and the type of the same name for a number, such as `unsigned`
    ///   for `u32`.
    /// - It accesses only elements of its buffers and what it declares itself, and no more shared memory than
    ///   the launch provides. It only reads the elements of an [`In`]. It is not told where a buffer ends. If
    ///   it takes a length, the promise covers the lengths and grids of all its launches: keep the kernel
    ///   from code that may pass others.
    /// - It accesses no buffer after the launch has ended.
    /// - Its threads do not race. The graph and the stream order launches; only the code orders the threads
    ///   of one launch.
    pub unsafe fn cuda_c(name: impl Into<Arc<str>>, source: impl Into<Arc<str>>) -> Self {
        Self { code: Code::new(name.into(), Text::CudaC(source.into())), twin: None }
    }

    /// Returns a kernel given as PTX: the entry `name`.
    ///
    /// # Safety
    /// As [`Kernel::cuda_c`]; a pointer is a parameter of 64 bits, and a number is a parameter of its own
    /// size.
    pub unsafe fn ptx(name: impl Into<Arc<str>>, source: impl Into<Arc<str>>) -> Self {
        Self { code: Code::new(name.into(), Text::Ptx(source.into())), twin: None }
    }

    /// Sets the function that a host runs in the kernel's place. It is called once for a whole launch.
    pub fn twin(mut self, twin: impl Fn(&Launch, P::Host<'_>) + Send + Sync + 'static) -> Self {
        self.twin = Some(Arc::new(twin));
        self
    }

    /// Returns the name of the function.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    pub(super) fn code(&self) -> &Arc<Code> {
        &self.code
    }

    pub(super) fn run_twin(&self, launch: &Launch, args: P::Args<'_>) -> Result<()> {
        let twin = self.twin.as_ref().ok_or_else(|| Kind::NoTwin { kernel: self.code.name.clone() }.into())?;
        twin(launch, P::host(args)?);
        Ok(())
    }
}

impl<P: Params> Clone for Kernel<P> {
    fn clone(&self) -> Self {
        Self { code: self.code.clone(), twin: self.twin.clone() }
    }
}

impl<P: Params> fmt::Debug for Kernel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name()).field("has_twin", &self.twin.is_some()).finish()
    }
}

/// A parameter that is a buffer which the kernel reads: a launch takes `&Buffer<T>` or `&BufferSlice<T>`, and
/// the twin gets `&[T]`.
///
/// ```
/// use anabranch::device::{In, Kernel, Out};
///
/// /// Adds two buffers: `add(const float* a, const float* b, float* sum, unsigned n)`.
/// type Add = Kernel<(In<f32>, In<f32>, Out<f32>, u32)>;
/// # fn name_of(_: Add) {}
/// ```
#[derive(Debug)]
pub struct In<T>(PhantomData<T>);

/// A parameter that is a buffer which the kernel writes, or reads and writes: a launch takes `&mut Buffer<T>`
/// or `&mut BufferSlice<T>`, and the twin gets `&mut [T]`.
///
/// ```
/// use anabranch::device::{Kernel, Out};
///
/// /// Changes a buffer in place: `negate(float* x, unsigned n)`.
/// type Negate = Kernel<(Out<f32>, u32)>;
/// # fn name_of(_: Negate) {}
/// ```
#[derive(Debug)]
pub struct Out<T>(PhantomData<T>);

/// One parameter of a kernel: [`In`], [`Out`], or a number.
///
/// ```
/// use anabranch::device::{In, KernelParam};
///
/// /// The arguments of a launch and of a twin.
/// fn sum(x: <In<f32> as KernelParam>::Host<'_>, n: <u32 as KernelParam>::Host<'_>) -> f32 {
///     x[..n as usize].iter().sum()
/// }
/// assert_eq!(sum(&[1.0, 2.0, 4.0], 2), 3.0);
/// ```
pub trait KernelParam: 'static {
    /// The argument of a launch.
    type Arg<'a>;
    /// The argument of the twin.
    type Host<'a>;

    #[doc(hidden)]
    fn host<'a>(arg: Self::Arg<'a>) -> Result<Self::Host<'a>>;
    #[doc(hidden)]
    fn device<'a>(arg: Self::Arg<'a>) -> Arg<'a>;
}

impl<T: Element> KernelParam for In<T> {
    type Arg<'a> = &'a BufferSlice<T>;
    type Host<'a> = &'a [T];

    fn host<'a>(arg: Self::Arg<'a>) -> Result<Self::Host<'a>> {
        arg.read_by(true).on_host()
    }

    fn device<'a>(arg: Self::Arg<'a>) -> Arg<'a> {
        Arg::Memory(MemoryArg(arg.read_by(false).on_device(), How::Reads))
    }
}

impl<T: Element> KernelParam for Out<T> {
    type Arg<'a> = &'a mut BufferSlice<T>;
    type Host<'a> = &'a mut [T];

    fn host<'a>(arg: Self::Arg<'a>) -> Result<Self::Host<'a>> {
        arg.written_by(true).on_host()
    }

    fn device<'a>(arg: Self::Arg<'a>) -> Arg<'a> {
        Arg::Memory(MemoryArg(arg.written_by(false).on_device(), How::Writes))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl KernelParam for $number {
            type Arg<'a> = $number;
            type Host<'a> = $number;

            fn host<'a>(arg: Self::Arg<'a>) -> Result<Self::Host<'a>> {
                Ok(arg)
            }

            fn device<'a>(arg: Self::Arg<'a>) -> Arg<'a> {
                let mut bytes = [0; 8];
                bytes[..size_of::<$number>()].copy_from_slice(&arg.to_ne_bytes());
                Arg::Number(bytes)
            }
        }
    )* };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// All parameters of a kernel: a tuple of up to eight.
///
/// ```
/// use anabranch::device::{In, Kernel, Launch, Out, Params};
/// use anabranch::{Buffer, DeviceStream, Result};
///
/// /// Launches any kernel that has one thread for each of `len` elements.
/// fn launch<P: Params>(s: &mut DeviceStream, kernel: &Kernel<P>, len: usize, args: P::Args<'_>) -> Result<()> {
///     s.launch(kernel, Launch::for_len(len), args)
/// }
///
/// type CopyKernel = Kernel<(In<f32>, Out<f32>)>;
///
/// fn copy(s: &mut DeviceStream, kernel: &CopyKernel, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
///     launch(s, kernel, x.len(), (x, y))
/// }
/// ```
pub trait Params: 'static {
    /// The arguments of a launch.
    type Args<'a>;
    /// The arguments of the twin.
    type Host<'a>;

    #[doc(hidden)]
    fn host<'a>(args: Self::Args<'a>) -> Result<Self::Host<'a>>;
    #[doc(hidden)]
    fn device<'a, R>(args: Self::Args<'a>, launch: impl FnOnce(&[Arg<'a>]) -> R) -> R;
}

macro_rules! params {
    ($($P:ident $p:ident),*) => {
        impl<$($P: KernelParam),*> Params for ($($P,)*) {
            type Args<'a> = ($($P::Arg<'a>,)*);
            type Host<'a> = ($($P::Host<'a>,)*);

            fn host<'a>(args: Self::Args<'a>) -> Result<Self::Host<'a>> {
                let ($($p,)*) = args;
                Ok(($($P::host($p)?,)*))
            }

            fn device<'a, R>(args: Self::Args<'a>, launch: impl FnOnce(&[Arg<'a>]) -> R) -> R {
                let ($($p,)*) = args;
                launch(&[$($P::device($p)),*])
            }
        }
    };
}

params!(A a);
params!(A a, B b);
params!(A a, B b, C c);
params!(A a, B b, C c, D d);
params!(A a, B b, C c, D d, E e);
params!(A a, B b, C c, D d, E e, G g);
params!(A a, B b, C c, D d, E e, G g, H h);
params!(A a, B b, C c, D d, E e, G g, H h, I i);
