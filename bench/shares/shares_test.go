package shares_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/shares"
)

// run is a run that began at 100 s, with a trial of messages from 101 to 102 s behind a warmup, and one that counts calls.
func run() *report.Document {
	return &report.Document{
		Began: time.Unix(100, 0),
		Scenarios: []*report.Scenario{{Name: "echo-64-64", Workload: "echo", Trials: []*report.Trial{
			{Contestant: "a", StartSeconds: 0.5, WarmupSeconds: 0.5, ElapsedSeconds: 1, Requests: 10},
			{Contestant: "a", Role: report.Counting, StartSeconds: 5, ElapsedSeconds: 1, Requests: 10},
		}}, {Name: "connections", Workload: "connect", Trials: []*report.Trial{{Contestant: "a", StartSeconds: 7, ElapsedSeconds: 1}}}},
	}
}

// stack is a sample at a time, with symbols from the innermost on; those with "k " before them are the kernel's.
func stack(comm, at string, symbols ...string) string {
	var b strings.Builder
	b.WriteString(comm + "  77 " + at + ": \n")
	for _, s := range symbols {
		if name, kernel := strings.CutPrefix(s, "k "); kernel {
			b.WriteString("\tffffffff81710de3 " + name + "\n")
		} else {
			b.WriteString("\t          1469e " + s + "\n")
		}
	}
	return b.String() + "\n"
}

func TestParts(t *testing.T) {
	for want, s := range map[report.Part]string{
		report.Peers:    stack("penstock-bench", "101.5", "k tcp_sendmsg", "k __x64_sys_sendto", "main.main"),
		report.Delivery: stack("penstock", "101.5", "k tcp_v4_rcv", "k net_rx_action", "k tcp_sendmsg", "k __x64_sys_sendto", "main.main"),
		report.Lane:     stack("penstock-bench", "101.5", "k bpf_prog_6deef7357e7b4530_ingress", "k net_rx_action", "k __x64_sys_sendto"),
		report.Reads:    stack("penstock", "101.5", "k tcp_splice_read", "k splice_file_to_pipe", "k __x64_sys_splice"),
		report.Writes:   stack("penstock", "101.5", "k tcp_sendmsg", "k splice_to_socket", "k __x64_sys_splice"),
		report.Waits:    stack("penstock", "101.5", "k schedule", "k __x64_sys_epoll_pwait2", "loop.wait"),
		report.Code:     stack("penstock", "101.5", "relay.move"),
	} {
		list, err := shares.Of(run(), strings.NewReader(s), 1000)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v: %v, %v", want, list, err)
		}
		for p := range report.Parts {
			seconds := 0.0
			if p == want {
				seconds = 0.001
			}
			if list[0].Seconds[p] != seconds {
				t.Errorf("of a sample of %q %v s are of %q, want %v", want, list[0].Seconds[p], p, seconds)
			}
		}
	}
}

func TestOnlyTrialsCount(t *testing.T) {
	var samples string
	for _, at := range []string{"99.9", "100.7", "100.999999999", "101.0", "101.999999", "102.0", "105.5", "107.5"} {
		samples += stack("penstock", at, "relay.move")
	}
	list, err := shares.Of(run(), strings.NewReader(samples), 1000)
	if err != nil || len(list) != 1 || list[0].Seconds[report.Code] != 0.002 || list[0].Units != 10 || list[0].Total() != 0.0002 {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestNoSamples(t *testing.T) {
	for _, text := range []string{"a", "a b c\n", "a b 1.x:\n", "penstock 7 1:\n\nwrong\n"} {
		if list, err := shares.Of(run(), strings.NewReader(text), 1000); err == nil || !strings.Contains(err.Error(), "is no sample of perf script") {
			t.Errorf("of %q: %v, %v", text, list, err)
		}
	}
}

func TestPicture(t *testing.T) {
	list := []report.Breakdown{
		{Scenario: "s", Contestant: "a < b", Unit: "request", Units: 2, Seconds: [report.Parts]float64{1, 1}},
		{Scenario: "s", Contestant: "none", Unit: "request"},
	}
	var b, text bytes.Buffer
	if err := report.WriteShares(&b, list, []string{"about"}); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteSharesText(&text, list); err != nil || !strings.Contains(text.String(), "s, a < b: 1.00 s/request; client and server 50.0 %") {
		t.Errorf("%q, %v", text.String(), err)
	}
	if !strings.Contains(b.String(), "50 %") || strings.Contains(b.String(), "NaN") {
		t.Error(b.String())
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
