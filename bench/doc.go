// Package bench measures proxies against each other.
//
// A Rig has a server, a load and any number of contestants. Each is a separate process, so that the processor time
// of a contestant contains nothing else. A machine drifts by more than proxies differ. So the result is the ratio
// of two contestants that are measured side by side, over several rounds.
//
// A Run is one run of `penstock-bench`: scenarios and contestants. In every round, each contestant is measured
// beside a baseline. The baseline is also measured beside itself, which shows the noise in a ratio.
//
// These packages are below it: traffic is the data, sink the server, and load the client, which also checks the
// answers. Rival and contestant are the proxies. Process starts the children, and measures their resources and
// system calls. Report has the medians, ratios, tables and the picture. Incident, reload, rolling and handshake
// are separate measurements, which penstock-bench runs, too. Claims and uring are benchmarks for go test.
package bench
