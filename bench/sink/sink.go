// Package sink is what a benchmark's contestants forward to. It serves, told
// apart by their first bytes (package traffic):
//
//   - "bulk SEED": the content of that seed until the client half-closes, and
//     then a trailer;
//   - "once N": N bytes come back, beginning with the line, and then the sink
//     closes, before the client does;
//   - "script {...}": what a traffic.Script says, for the checks of a proxy;
//   - "tell TOKEN": a traffic.Report of a scripted connection;
//   - everything else comes back as it is.
//
// It is an epoll loop, because on a machine with few processors what the sink
// costs hides what the proxies cost: a small message is one receive and one
// send, without a receive that finds nothing. What it sends are ordinary sends:
// pages lent by sendfile would spare it the copy, but would reach the proxies in
// smaller fragments than those of other servers, and so change what is measured.
package sink
