use http_body_util::{BodyExt, Full};
use std::io::{BufRead, Write};
use tower::Service;
#[tokio::main]
async fn main() {
    let mut server = purelb_kubelite::Kubelite::new();
    for line in std::io::stdin().lock().lines() {
        let q: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if q["m"] == "COMPACT" { server.compact(); println!("{{}}"); continue; }
        let mut b = http::Request::builder().method(q["m"].as_str().unwrap()).uri(q["path"].as_str().unwrap());
        if let Some(c) = q["ct"].as_str() { b = b.header("content-type", c); }
        if let Some(c) = q["accept"].as_str() { b = b.header("accept", c); }
        let body = q["body"].as_str().unwrap_or("").to_owned();
        let r = server.call(b.body(Full::new(bytes::Bytes::from(body))).unwrap()).await.unwrap();
        let code = r.status().as_u16();
        let text = String::from_utf8_lossy(&r.into_body().collect().await.unwrap().to_bytes()).into_owned();
        println!("{}", serde_json::json!({"code": code, "text": text}));
        std::io::stdout().flush().unwrap();
    }
}
