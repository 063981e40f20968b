//! An image service: it makes thumbnails of pictures that clients send. Clients who wait come before those
//! who do not; each request has a deadline, and at the end none is lost.
//!
//! ```sh
//! cargo run --release --example image_service               # asks itself; or -- FOLDER, for the picture
//! cargo run --release --example image_service -- FOLDER 127.0.0.1:8080
//! curl --data-binary @cat.jpg 127.0.0.1:8080/thumbnails/64 > cat.png
//! ```

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch::exec::Service;
use anabranch::{BoxError, Error, Executor, Function, Graph, Result, Timeline, Value, take};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::{Router, routing::post};
use futures::future::try_join_all;
use image::{ImageFormat, RgbImage, imageops};
use tokio::net::TcpListener;
use tower::ServiceExt;

const PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/thumbnails/photos");

/// From a picture and the side of its thumbnail, the thumbnail as PNG and its mean colour.
type Thumbnail = Function<(Value<Bytes>, Value<u32>), (Value<Vec<u8>>, Value<String>)>;

fn thumbnail() -> Result<Thumbnail> {
    Function::new("thumbnail", |g: &mut Graph, (bytes, side): (Value<Bytes>, Value<u32>)| {
        let picture = g.try_task("decode", &bytes, |bytes: &Bytes| Ok(image::load_from_memory(bytes)?.into_rgb8()));
        let small = g.task("resize", (take(&picture), &side), |picture: RgbImage, &side: &u32| {
            let (width, height) = picture.dimensions();
            let scale = |length: u32| (u64::from(length) * u64::from(side) / u64::from(width.max(height))).max(1) as u32;
            imageops::thumbnail(&picture, scale(width), scale(height))
        });
        let png = g.try_task("encode", &small, |small: &RgbImage| {
            let mut png = std::io::Cursor::new(Vec::new());
            small.write_to(&mut png, ImageFormat::Png)?;
            Ok(png.into_inner())
        });
        let colour = g.task("colour", &small, |small: &RgbImage| {
            let mean =
                |channel: usize| small.pixels().map(|pixel| u64::from(pixel[channel])).sum::<u64>() / small.pixels().len() as u64;
            format!("#{:02x}{:02x}{:02x}", mean(0), mean(1), mean(2))
        });
        (png, colour)
    })
}

type Answer = Result<([(&'static str, String); 1], Vec<u8>), (StatusCode, String)>;

/// A client that goes away drops this future, and with it the run.
async fn answer(State(service): State<Service<Thumbnail>>, Path(side): Path<u32>, picture: Bytes) -> Answer {
    let told = |error: Error| (status(&error), error.source().unwrap_or(&error).to_string());
    let (png, colour) = service.oneshot((picture, side.clamp(1, 1024))).await.map_err(told)?;
    Ok(([("mean-colour", Arc::unwrap_or_clone(colour))], Arc::unwrap_or_clone(png)))
}

fn status(error: &Error) -> StatusCode {
    match error {
        _ if error.is_shut_down() => StatusCode::SERVICE_UNAVAILABLE,
        _ if error.is_past_deadline() => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().map_or_else(|| std::env::temp_dir().join("image_service"), PathBuf::from);
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot write into {}: {error}", folder.display()))?;
    let timeline = Arc::new(Timeline::new(100_000));
    let exec = Executor::builder().max_in_flight(4).observer(timeline.clone()).build()?;
    let service = exec.service(&thumbnail()?).timeout(Duration::from_secs(30));
    let app = Router::new()
        .route("/thumbnails/{side}", post(answer).with_state(service.clone().priority(1)))
        .route("/later/{side}", post(answer).with_state(service));
    match args.next() {
        Some(address) => {
            let asked_to_end = async { _ = tokio::signal::ctrl_c().await };
            let listener = TcpListener::bind(&address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
            axum::serve(listener, app).with_graceful_shutdown(asked_to_end).await?;
        }
        None => ask_all(&app).await?,
    }
    exec.drain().await?;

    std::fs::write(folder.join("timeline.svg"), timeline.to_svg())?;
    println!("{} shows all requests", folder.join("timeline.svg").display());
    Ok(())
}

/// Sends all photographs at once, for now and for later, and their licences, which are no picture.
async fn ask_all(app: &Router) -> Result<(), BoxError> {
    let files: Vec<PathBuf> = std::fs::read_dir(PHOTOS)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let paths = ["/later/400", "/thumbnails/64"].into_iter().cycle();
    let asked = files.iter().zip(paths).map(async |(file, path)| {
        let request = Request::post(path).body(Body::from(tokio::fs::read(file).await?))?;
        let response = app.clone().oneshot(request).await?;
        let (status, colour) = (response.status(), response.headers().get("mean-colour").cloned());
        let body = to_bytes(response.into_body(), usize::MAX).await?;
        let told = colour.map_or_else(|| String::from_utf8_lossy(&body).into_owned(), |colour| format!("{colour:?}"));
        println!("{path:14} {:14} {status}: {told}", file.file_name().unwrap_or_default().display());
        Ok::<(), BoxError>(())
    });
    try_join_all(asked).await.map(drop)
}
