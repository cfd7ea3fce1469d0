// Package bench measures proxies against each other.
//
// A Rig is a server, a load and any number of contestants. Each is a separate process, so that
// the processor time of a contestant contains nothing else. Machines drift by more than
// proxies differ. So the result is the ratio of two contestants measured side by side, over
// several rounds.
//
// A Run is one run of `penstock-bench`: scenarios and contestants. Each contestant is measured
// beside a baseline in every round. The baseline is also measured beside itself, which shows
// the noise in a ratio.
//
// The packages below it are traffic (the data), sink (the server) and load (the client, which also
// checks the answers). Rival and contestant are the proxies, process is the children, their
// resource usage and system calls. Package report has the medians, ratios, tables and the picture.
// Incident, reload, rolling and handshake are measurements of their own, which penstock-bench runs
// too; claims and uring are benchmarks of go test.
package bench
