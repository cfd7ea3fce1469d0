package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// flowRounds is how many rounds the proxies of measureFlow get, and flowSeconds how long a flow is.
const (
	flowRounds  = 3
	flowSeconds = 3
)

// flowKinds are the contestants of measureFlow; the others are divided by the first.
var flowKinds = []string{"penstock", "haproxy-splice-1", "io.Copy", "direct"}

// measureFlow sends one flow of iperf3 through the program, HAProxy with splicing and a Go proxy by io.Copy, and without a proxy. All are
// processes of their own, started anew for each flow.
func measureFlow(ctx context.Context) (r Result, err error) {
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	dir, err := os.MkdirTemp("", "penstock-claims-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	penstock := filepath.Join(dir, "penstock")
	if said, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", penstock, "github.com/penstock/penstock/proxy/cmd/penstock").CombinedOutput(); err != nil {
		return r, fmt.Errorf("go build: %w: %s", err, said)
	}
	group := process.NewGroup()
	defer group.Close()
	setting := contestant.Setting{Group: group, Dir: dir, Program: contestant.Program{
		Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, PenstockPath: penstock, Proxy: []string{"proxy"},
	}}
	bits, cpu := make([]report.Sample, len(flowKinds)), make([]report.Sample, len(flowKinds))
	for round := range flowRounds {
		for i := range flowKinds {
			k := (i + round) % len(flowKinds)
			rate, used, err := flow(ctx, setting, flowKinds[k])
			if err != nil {
				return r, fmt.Errorf("%s: %w", flowKinds[k], err)
			}
			bits[k], cpu[k] = append(bits[k], rate), append(cpu[k], used)
		}
	}
	for i, name := range flowKinds {
		r = append(r, of(name, spread("", Bits, bits[i]), spread("CPU per GB", Seconds, cpu[i]))...)
	}
	for i, name := range flowKinds[1:] {
		r = append(r, spread("time for a byte, "+flowKinds[0]+" / "+name, Ratio, bits[i+1].Over(bits[0])))
	}
	return r, nil
}

// flow returns the bits that arrived in a second, and the proxy's CPU seconds for a gigabyte.
func flow(ctx context.Context, setting contestant.Setting, name string) (bits, cpu float64, err error) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return 0, 0, errors.New("iperf3 is not installed: apt-get install iperf3")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a flow is not over within a minute"))
	defer cancel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	setting.Upstream = l.Addr().String()
	_, port, _ := net.SplitHostPort(setting.Upstream)
	l.Close()
	iperf := func(args ...string) (*process.Child, error) {
		return setting.Group.Start(process.Spec{Name: "iperf3", Path: path, Args: append([]string{"iperf3"}, args...)})
	}
	server, err := iperf("-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush")
	if err != nil {
		return 0, 0, err
	}
	defer server.Kill()
	for line := ""; !strings.Contains(line, "listening"); {
		if line, err = server.Stdout(ctx); err != nil {
			return 0, 0, err
		}
	}
	kind, err := contestant.Named(name)
	if err != nil {
		return 0, 0, err
	}
	proxy, err := kind.Start(ctx, &setting)
	if err != nil {
		return 0, 0, err
	}
	defer proxy.Kill()
	before, err := proxy.Usage()
	if err != nil {
		return 0, 0, err
	}
	host, port, err := net.SplitHostPort(proxy.Address)
	if err != nil {
		return 0, 0, err
	}
	client, err := iperf("-c", host, "-p", port, "-t", fmt.Sprint(flowSeconds), "-i", "0", "-J")
	if err != nil {
		return 0, 0, err
	}
	defer client.Kill()
	var said strings.Builder
	for err == nil {
		var line string
		if line, err = client.Stdout(ctx); err == nil {
			said.WriteString(line + "\n")
		}
	}
	var result struct {
		Error string
		End   struct {
			Received struct {
				Bytes         float64
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if json.Unmarshal([]byte(said.String()), &result) != nil || result.Error != "" || result.End.Received.Bytes == 0 {
		return 0, 0, fmt.Errorf("iperf3 received nothing: %w; %s", err, result.Error)
	}
	after, err := proxy.Usage()
	return result.End.Received.BitsPerSecond, (after.CPU - before.CPU).Seconds() / result.End.Received.Bytes * 1e9, err
}
