//! Directives of nginx that have no option of Weir.

use super::directives::Directive;
use crate::import::draft::{Draft, SourceLine};
use crate::import::report::{Kind, OPEN};

/// A refusal, with the status of nginx.
pub(super) type Refusal = (SourceLine, u16);

/// The refusal of all requests of a block, if it has one.
pub(super) fn refusal(block: &[Directive]) -> Option<Refusal> {
    let first = |name: &str| block.iter().find(|directive| directive.name == name);
    if let Some(internal) = first("internal") {
        return Some((internal.place, 404));
    }
    let status = |directive: &Directive| directive.word(0).parse().ok().filter(|status| (400..600).contains(status));
    first("return").and_then(|directive| Some((directive.place, status(directive)?)))
}

/// Directives that change no decision about requests.
const NOT_NEEDED: &str = "user worker_processes worker_rlimit_nofile pid events daemon master_process error_log access_log \
    log_format log_not_found open_log_file_cache sendfile tcp_nopush tcp_nodelay keepalive_timeout keepalive_requests \
    keepalive zone types default_type types_hash_max_size types_hash_bucket_size server_names_hash_bucket_size \
    server_names_hash_max_size variables_hash_max_size map_hash_bucket_size map_hash_max_size server_tokens \
    proxy_http_version client_body_temp_path proxy_temp_path fastcgi_temp_path uwsgi_temp_path scgi_temp_path \
    limit_req_log_level limit_conn_log_level";

/// Directives whose names begin like this, and the reason why they are left out.
const REASONS: [(&str, &str); 16] = [
    ("set_real_ip_from", "set `server.trusted_proxies` by hand"),
    ("real_ip_", "set `server.trusted_proxies` by hand"),
    ("ssl_", "set `server.tls` by hand"),
    ("allow", OPEN),
    ("deny", OPEN),
    ("auth_", "Weir checks no passwords, and asks no other service"),
    ("limit_rate", "Weir bounds bytes in a period, not the speed of an answer"),
    ("limit_except", OPEN),
    ("return", "Weir only forwards requests to services"),
    ("rewrite", "Weir only changes the start of a path"),
    ("if", "Weir has no conditions of this kind"),
    ("try_files", "Weir only forwards requests to services"),
    ("root", "Weir only forwards requests to services"),
    ("fastcgi_", "Weir speaks only HTTP to services"),
    ("proxy_cache", "Weir stores answers only with `limit.stale`"),
    ("stream", "Weir forwards only HTTP"),
];

/// Notes a directive that is not translated.
pub(super) fn note(directive: &Directive, draft: &mut Draft) {
    if NOT_NEEDED.split_whitespace().any(|name| name == directive.name) {
        return draft.note(Kind::NotNeeded, directive.place, "it changes no decision about requests");
    }
    let reason = REASONS.iter().find(|(start, _)| directive.name.starts_with(start));
    let reason = reason.map_or("Weir has no option for it", |(_, reason)| reason);
    note_all(directive, reason, draft);
}

/// Whether a location with this directive has another answer than a file.
pub(super) fn answers(name: &str) -> bool {
    let others = "root alias try_files return rewrite internal deny empty_gif stub_status if";
    name.ends_with("_pass") || others.split_whitespace().any(|other| other == name)
}

/// Notes a directive, and all directives of its block.
pub(super) fn note_all(directive: &Directive, reason: &str, draft: &mut Draft) {
    draft.left_out(directive.place, reason);
    for inner in directive.directives() {
        note_all(inner, "it belongs to a block that is left out", draft);
    }
}
