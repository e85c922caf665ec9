//! The listener of the limiter service: TLS, bounds, health, reflection, and its end.

use std::io::{Read, Write};
use std::net::TcpStream;

use http::uri::PathAndQuery;
use prost::Message;
use prost_types::FileDescriptorProto;
use prost_types::field_descriptor_proto::Type;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use weir::fleet::grpc::proto::weir::v1::CheckRequest;
use weir::fleet::grpc::proto::weir::v1::limiter_client::LimiterClient;
use weir::fleet::stores::service::proto::{JoinRequest, KeyState};

use super::askers::call;
use super::{Caller, channel, of, runtime, start};
use crate::ops::replace;
use crate::support::{Cert, PATIENCE, Upstream, Weir};
use crate::takeover::Place;

const ALL: &str = r#"
[[grpc.check]]
limits = { all = { "name:client" = "{actor}" } }
[[limit]]
name = "all"
key = ["name:client"]
rate = "10/h"
"#;

#[test]
fn callers_show_certificates() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    let (server, authority) = (Cert::of_hosts(&["limiter.test"]), Cert::authority());
    let (own, foreign) = (authority.client("caller", &[], &[]), Cert::authority().client("caller", &[], &[]));
    server.write(folder.path(), "server");
    authority.write(folder.path(), "authority");
    let tls =
        "tls = { certificates = [{ cert = \"server.pem\", key = \"server.key\" }], client_ca = \"authority.pem\" }";
    let config = Weir::config(&upstream, "", &format!("[grpc]\nlisten = \"127.0.0.1:0\"\n{tls}\n{ALL}"));
    std::fs::write(folder.path().join("weir.toml"), &config).unwrap();
    let weir = Weir::start_in(folder);
    let ask = |own: Option<&Cert>| {
        let tls = ClientTlsConfig::new().domain_name("limiter.test").ca_certificate(Certificate::from_pem(&server.pem));
        let tls = match own {
            Some(own) => tls.identity(Identity::from_pem(&own.pem, &own.key)),
            None => tls,
        };
        let endpoint = Channel::from_shared(format!("https://{}", weir.grpc())).unwrap().tls_config(tls).unwrap();
        let runtime = runtime();
        runtime.block_on(async {
            let mut client = LimiterClient::new(endpoint.connect().await.ok()?);
            client.check(of("7", "x", 1)).await.ok().map(|answer| answer.into_inner().remaining)
        })
    };
    assert_eq!(ask(Some(&own)), Some(9));
    assert_eq!(ask(None), None);
    assert_eq!(ask(Some(&foreign)), None);
    assert_eq!(ask(Some(&own)), Some(8));
    // Another address needs no certificates, but is in force only after a restart.
    let moved = config
        .replace(", client_ca = \"authority.pem\"", "")
        .replace("[grpc]\nlisten = \"127.0.0.1", "[grpc]\nlisten = \"127.0.0.2");
    replace(&weir.config_file(), &moved);
    weir.wait_for_line("\"reloaded\"");
    assert_eq!((ask(None), ask(Some(&own))), (None, Some(7)));
    weir.wait_for_metric("weir_tls_handshakes_failed_total", |failed| failed >= 3.0);
    weir.wait_for_metric("weir_grpc_connections", |open| open == 0.0);
}

#[test]
fn there_are_bounds() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("max_connections = 1\nmax_message_bytes = \"1KiB\"\n{ALL}"));
    let mut caller = Caller::of(&weir);
    assert_eq!(caller.ask("7", "x", 1), (true, 9));
    let too_long = CheckRequest { actor: "7".repeat(2000), ..of("", "x", 1) };
    assert_eq!(caller.code(too_long), Code::OutOfRange);
    assert_eq!(weir.metric("weir_grpc_invalid_total"), 1.0);
    assert_eq!(caller.ask("7", "x", 1), (true, 8));
    // A second connection is closed.
    let mut second = TcpStream::connect(weir.grpc()).unwrap();
    second.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(second.read(&mut [0; 64]), Ok(0) | Err(_)));
    weir.wait_for_metric("weir_grpc_connections_refused_total", |refused| refused >= 1.0);
    drop(caller);
    weir.wait_for_metric("weir_grpc_connections", |open| open == 0.0);
    // Other protocols are closed, too.
    let mut other = TcpStream::connect(weir.grpc()).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n").unwrap();
    assert!(matches!(other.read(&mut [0; 64]), Ok(0) | Err(_)));
    weir.wait_for_metric("weir_grpc_connections", |open| open == 0.0);
    assert_eq!(Caller::of(&weir).ask("7", "x", 1), (true, 7));
}

/// A message that is none of the method is a mistake of the caller, not a failure of Weir, for which Envoy would leave it.
#[test]
fn messages_that_cannot_be_decoded_are_invalid() {
    let upstream = Upstream::start();
    let weir = start(&upstream, ALL);
    let codes = runtime().block_on(async {
        let mut client = Grpc::new(channel(weir.grpc()).await);
        let mut codes = Vec::new();
        for method in [
            "/weir.v1.Limiter/Check",
            "/weir.v1.charges.Charges/Join",
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            "/grpc.health.v1.Health/Check",
        ] {
            codes.push(call::<u64, ()>(&mut client, method, 7).await.unwrap_err());
        }
        client.ready().await.unwrap();
        let (path, codec) =
            (PathAndQuery::from_static("/weir.v1.Limiter/CheckStream"), ProstCodec::<u64, ()>::default());
        let mut stream =
            client.streaming(Request::new(tokio_stream::iter([7])), path, codec).await.unwrap().into_inner();
        codes.push(stream.next().await.unwrap().unwrap_err().code());
        codes
    });
    assert_eq!(codes, [Code::InvalidArgument; 5]);
    assert_eq!(weir.metric("weir_grpc_invalid_total"), 5.0);
}

#[test]
fn health_and_reflection() {
    let upstream = Upstream::start();
    let weir = start(&upstream, ALL);
    let runtime = runtime();
    let channel = runtime.block_on(channel(weir.grpc()));
    let mut health = HealthClient::new(channel.clone());
    for (service, expected) in [
        ("", Ok(ServingStatus::Serving)),
        ("weir.v1.Limiter", Ok(ServingStatus::Serving)),
        ("envoy.service.ratelimit.v3.RateLimitService", Ok(ServingStatus::Serving)),
        ("weir.v1.Other", Err(Code::NotFound)),
    ] {
        let answer = runtime.block_on(health.check(HealthCheckRequest { service: service.into() }));
        let status = answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code());
        assert_eq!(status, expected, "{service}");
    }
    let mut reflection = ServerReflectionClient::new(channel);
    let request = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let requests = [
        request(MessageRequest::ListServices(String::new())),
        request(MessageRequest::FileContainingSymbol("weir.v1.Limiter".into())),
        request(MessageRequest::FileContainingSymbol(
            "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor".into(),
        )),
    ];
    let answers = runtime.block_on(async {
        let stream = reflection.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
        stream.map(|answer| answer.unwrap().message_response.unwrap()).collect::<Vec<_>>().await
    });
    let [
        MessageResponse::ListServicesResponse(services),
        MessageResponse::FileDescriptorResponse(files),
        MessageResponse::FileDescriptorResponse(of_envoy),
    ] = &*answers
    else {
        panic!("{answers:?}");
    };
    let names: Vec<&str> = services.service.iter().map(|service| &*service.name).collect();
    assert!(names.contains(&"weir.v1.Limiter") && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    assert_eq!(files.file_descriptor_proto.len(), 1);
    // The published types, for tools that write messages as JSON.
    let file = FileDescriptorProto::decode(&*of_envoy.file_descriptor_proto[0]).unwrap();
    let entry = &file.message_type[0].nested_type[0];
    assert!(entry.name() == "Entry" && entry.field.iter().all(|field| field.r#type() == Type::String), "{entry:?}");
}

/// A reload changes the limits of open connections.
#[test]
fn a_reload_applies_to_open_connections() {
    let upstream = Upstream::start();
    let weir = start(&upstream, ALL);
    let mut caller = Caller::of(&weir);
    assert_eq!(caller.ask("7", "x", 6), (true, 4));
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.config_file(), config.replace("10/h", "8/h")).unwrap();
    weir.signal("HUP");
    weir.wait_for_line("\"reloaded\"");
    assert_eq!(caller.ask("7", "x", 1).1, 1);
}

/// A reload bounds the messages of connections that are accepted after it.
#[test]
fn a_reload_bounds_messages() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("max_message_bytes = \"1KiB\"\n{ALL}"));
    let long = CheckRequest { actor: "7".repeat(2000), ..of("", "x", 1) };
    let mut before = Caller::of(&weir);
    assert_eq!(before.code(long.clone()), Code::OutOfRange);
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &config.replace("1KiB", "4KiB"));
    weir.wait_for_line("\"reloaded\"");
    assert_eq!((Caller::of(&weir).code(long.clone()), before.code(long)), (Code::Ok, Code::OutOfRange));
}

/// Without `fleet.secret` no Weir brings its states.
#[test]
fn messages_of_all_services_are_bounded() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("max_message_bytes = \"1KiB\"\n{ALL}"));
    let codes = runtime().block_on(async {
        let mut client = Grpc::new(channel(weir.grpc()).await);
        let states = vec![KeyState { limit: "x".repeat(2000), ..KeyState::default() }];
        let joining = JoinRequest { states, ..JoinRequest::default() };
        let checking = HealthCheckRequest { service: "x".repeat(2000) };
        [
            call::<_, ()>(&mut client, "/weir.v1.charges.Charges/Join", joining).await.unwrap_err(),
            call::<_, ()>(&mut client, "/grpc.health.v1.Health/Check", checking).await.unwrap_err(),
        ]
    });
    assert_eq!(codes, [Code::OutOfRange; 2]);
}

/// Connections that send nothing do not shut callers out.
#[test]
fn silent_connections_take_no_places() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("max_connections = 4\n{ALL}"));
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(weir.grpc()).unwrap()).collect();
    weir.wait_for_metric("weir_grpc_connections_refused_total", |refused| refused >= 36.0);
    assert_eq!(Caller::of(&weir).ask("7", "x", 1), (true, 9));
    drop(silent);
}

/// A connection whose place newer ones take is refused; its handshake has not failed.
#[test]
fn a_displaced_connection_is_no_failed_handshake() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().unwrap());
    Cert::of_hosts(&["limiter.test"]).write(folder.path(), "server");
    let tls = "max_connections = 4\ntls = { certificates = [{ cert = \"server.pem\", key = \"server.key\" }] }";
    let config = Weir::config(&upstream, "", &format!("[grpc]\nlisten = \"127.0.0.1:0\"\n{tls}\n{ALL}"));
    std::fs::write(folder.path().join("weir.toml"), &config).unwrap();
    let weir = Weir::start_in(folder);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(weir.grpc()).unwrap()).collect();
    let is_displaced = |line: &String| line.contains("newer connections take its place");
    weir.wait_until("36 have ended", || weir.lines().iter().filter(|line| is_displaced(line)).count() == 36);
    assert_eq!(weir.metric("weir_tls_handshakes_failed_total"), 0.0);
    drop(silent);
}

#[test]
fn calls_end_before_the_process() {
    let upstream = Upstream::start();
    let weir = start(&upstream, ALL);
    let mut caller = Caller::of(&weir);
    assert_eq!(caller.ask("7", "x", 1), (true, 9));
    weir.signal("TERM");
    weir.wait_for_line("\"draining\"");
    // The connection is told to end; the process does not wait for the caller to leave.
    assert_eq!(weir.wait(), Some(0));
    assert!(caller.check(of("7", "x", 1)).is_err());
}

#[test]
fn a_successor_inherits_the_listener() {
    let place = Place::new(&format!("[grpc]\nlisten = \"127.0.0.1:0\"\n{ALL}"));
    let before = place.start();
    let mut caller = Caller::of(&before);
    assert_eq!(caller.ask("7", "x", 6), (true, 4));
    let after = place.start();
    assert_eq!(after.grpc(), before.grpc());
    assert_eq!(Caller::of(&after).ask("7", "x", 1), (true, 3));
    assert_eq!(before.wait(), Some(0));
    assert_eq!(Caller::of(&after).ask("7", "x", 1), (true, 2));
}
