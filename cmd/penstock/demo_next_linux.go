package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy"
)

// invocation is how this program was called, for lines to be typed.
func invocation() string {
	// The go command runs what it has built in a directory of this name.
	if strings.Contains(os.Args[0], string(filepath.Separator)+"go-build") {
		return "go run ./cmd/penstock"
	}
	return os.Args[0]
}

// try writes lines to be typed, each with what it does.
func (p *page) try(lines ...[2]string) {
	var table report.Table
	for _, l := range lines {
		table.Left("  "+l[0], l[1])
	}
	p.table(&table)
}

// printNext says what to try after the demo.
func printNext(e *env) {
	p, self := newPage(e), invocation()
	p.heading("Try next")
	p.try(
		[2]string{self + " demo --stay", "play with it yourself"},
		[2]string{self + " proxy --listen :8080 --to HOST:PORT", "with a server of yours"},
		[2]string{self + " proxy --help", "every flag"},
	)
}

// printStay says what to do with a proxy that stays.
func printStay(e *env, c *contestant.Contestant) {
	p := newPage(e)
	host, port := reachable(c.Address)
	p.heading("penstock stays at " + c.Address)
	p.try(
		[2]string{"curl -o /dev/null http://" + net.JoinHostPort(host, port) + "/10G", "ten GB, by splice(2)"},
		[2]string{fmt.Sprintf("nc %s %s", host, port), "what you type comes back"},
		[2]string{fmt.Sprintf("kill -USR1 %d", os.Getpid()), "what went through so far"},
		[2]string{"Ctrl-C", "ends it"},
	)
}

// reachable turns a listening address into one to connect to: a listener on
// every address is reached through loopback.
func reachable(listening string) (host, port string) {
	at, err := netip.ParseAddrPort(listening)
	if err != nil {
		return listening, ""
	}
	a := at.Addr().WithZone("")
	if a.IsUnspecified() {
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return a.String(), fmt.Sprint(at.Port())
}

// printMoved says what went through while penstock stayed.
func printMoved(e *env, s *proxy.Summary) {
	moved := bench.Both(s)
	newPage(e).prose("%s connections, %s spliced, %s copied, %s pipes made, %s reused.",
		report.Exact(s.Connections.Accepted), report.Bytes(float64(moved.Spliced)), report.Bytes(float64(moved.Copied)),
		report.Exact(s.Pipes.Made), report.Exact(s.Pipes.Reused))
}
