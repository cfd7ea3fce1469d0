package traffic

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// testRedis drives the request and response traffic for which copying is meant: small messages on
// many connections, pipelined, reconnecting, and large values.
func testRedis(t *testing.T) {
	bench, cli := software.Need(t, "redis-benchmark", "redis-tools"), software.Need(t, "redis-cli", "redis-tools")
	addr, host, port := software.Addr(t)
	dir := software.Dir(t, nil)
	software.Service{
		Command: []string{
			software.Need(t, "redis-server", "redis-server"), "--bind", host, "--port", port,
			"--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
		},
		Dir:   dir,
		Ready: "Ready to accept connections",
		Addr:  addr,
		Stop:  syscall.SIGTERM,
	}.Start(t)

	tests := map[string]struct {
		requests, valueSize int
		flags               []string
		bulk                bool
	}{
		"small messages": {10_000, 256, []string{"-c", "50", "-t", "set,get,incr,lpush,lrange_100"}, false},
		"pipelined":      {100_000, 64, []string{"-c", "20", "-P", "16", "-t", "set,get"}, false},
		"reconnecting":   {3_000, 64, []string{"-c", "20", "-k", "0", "-t", "set,get"}, false},
		"large values":   {400, 1 << 20, []string{"-c", "8", "-t", "set,get"}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, addr)
			host, port := p.hostPort(t)
			out := software.Run(t, append([]string{
				bench, "-h", host, "-p", port, "--csv",
				"-n", strconv.Itoa(test.requests), "-d", strconv.Itoa(test.valueSize),
			}, test.flags...)...)
			checkBenchmark(t, out)
			if got := strings.TrimSpace(software.Run(t, cli, "-h", host, "-p", port, "strlen", "key:__rand_int__")); got != strconv.Itoa(test.valueSize) {
				t.Errorf("the value set has length %s, want %d", got, test.valueSize)
			}
			if errs := software.Run(t, cli, "-h", host, "-p", port, "info", "errorstats"); strings.Contains(errs, "errorstat_") {
				t.Errorf("the server replied with errors:\n%s", errs)
			}
			s := p.stop(t)
			s.clean(t)
			checkRedis(t, s, int64(test.requests)*int64(test.valueSize), test.bulk)
		})
	}
}

// testRedisUnix does the same over unix sockets, on both sides of the proxy.
func testRedisUnix(t *testing.T) {
	bench := software.Need(t, "redis-benchmark", "redis-tools")
	dir := software.Dir(t, nil)
	server, client := filepath.Join(dir, "server.sock"), filepath.Join(dir, "client.sock")
	software.Service{
		Command: []string{
			software.Need(t, "redis-server", "redis-server"), "--port", "0", "--unixsocket", server,
			"--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
		},
		Dir:   dir,
		Ready: "ready to accept connections",
		Stop:  syscall.SIGTERM,
	}.Start(t)

	p := startProxy(t, "unix:"+server, "--listen", "unix:"+client)
	for _, valueSize := range []int{64, 1 << 20} {
		checkBenchmark(t, software.Run(t, bench, "-s", client, "--csv", "-t", "set,get",
			"-n", "400", "-c", "8", "-d", strconv.Itoa(valueSize)))
	}
	s := p.stop(t)
	s.clean(t)
	checkRedis(t, s, 400*(1<<20), true)
	if _, err := os.Lstat(client); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the path of the proxy's socket is still there: %v", err)
	}
}

// checkBenchmark requires a rate for each of the benchmark's tests. The benchmark itself ends
// with an error when a request fails.
func checkBenchmark(t *testing.T, out string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	must(t, err)
	if len(rows) < 2 {
		t.Fatalf("redis-benchmark printed no results:\n%s", out)
	}
	for _, row := range rows[1:] {
		if rate, err := strconv.ParseFloat(row[1], 64); err != nil || rate <= 0 {
			t.Errorf("%s: rate %s, want more than 0", row[0], row[1])
		}
	}
}

// checkRedis requires that at least the values have passed in both directions, spliced if they
// are large.
func checkRedis(t *testing.T, s summary, values int64, bulk bool) {
	t.Helper()
	for direction, f := range map[string]flow{
		"client to endpoint": s.Bytes.ClientToEndpoint,
		"endpoint to client": s.Bytes.EndpointToClient,
	} {
		if f.All() < values {
			t.Errorf("%s: %d bytes, want at least the %d of the values", direction, f.All(), values)
		}
		if bulk && f.Spliced == 0 {
			t.Errorf("%s: nothing spliced of %d bytes in large values", direction, f.All())
		}
	}
}
