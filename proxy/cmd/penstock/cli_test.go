package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// call runs the program with args, and without signals.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(&cli.Env{Args: args, Stdout: &out, Stderr: &err, Getenv: func(string) string { return "" }})
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		args string
		want int
	}{
		{"", cli.ExitOK},
		{"--help", cli.ExitOK},
		{"proxy --help", cli.ExitOK},
		{"version", cli.ExitOK},
		{"help", cli.ExitOK},
		{"help proxy", cli.ExitOK},
		{"--version", cli.ExitOK},
		{"-v", cli.ExitOK},
		{"version now", cli.ExitUsage},
		{"proxy", cli.ExitUsage},
		{"proxy --listen unix:/dev/null/s --to 127.0.0.1:1", cli.ExitError},
	} {
		code, stdout, stderr := call(strings.Fields(c.args)...)
		if code != c.want {
			t.Errorf("penstock %s: exit code %d, want %d", c.args, code, c.want)
		}
		if code == cli.ExitOK && (stdout == "" || stderr != "") {
			t.Errorf("penstock %s: prints %q, complains %q", c.args, stdout, stderr)
		}
		if code != cli.ExitOK && (stdout != "" || strings.Count(stderr, "\n") != 1) {
			t.Errorf("penstock %s: prints %q, complains %q, want one line", c.args, stdout, stderr)
		}
	}
}

func TestSummaryAsText(t *testing.T) {
	t.Parallel()

	s := admin.Summary{
		Connections: admin.Connections{Accepted: 1, Active: 2, Refused: 3},
		RefusedBy:   map[string]int64{"unavailable": 3},
		Bytes: admin.Bytes{
			ClientToEndpoint: admin.ByEngine{Spliced: 4, Copied: 5},
			EndpointToClient: admin.ByEngine{Spliced: 6, Copied: 7},
		},
		Lost:      8,
		Fallbacks: map[string]int64{"wrapped": 9, "urgent": 10},
	}
	const want = "1 connections accepted, 3 refused (unavailable 3); client to endpoint: 4 bytes spliced, 5 copied; endpoint to client: 6 bytes spliced, 7 copied; 8 bytes lost; fallbacks: urgent 10, wrapped 9\n"
	var got bytes.Buffer
	if err := writeSummary(&got, "text", s); err != nil || got.String() != want {
		t.Errorf("summary is\n%s%v, want\n%s", got.String(), err, want)
	}
	got.Reset()
	s.Bytes.ClientToEndpoint.Lane, s.Bytes.EndpointToClient.Lane = 20, 30
	if err := writeSummary(&got, "text", s); err != nil || !strings.Contains(got.String(), "7 copied; in the lane: 20 bytes to endpoints, 30 to clients; 8 bytes lost") {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestWriteErrorsAreReported(t *testing.T) {
	t.Parallel()

	for _, form := range []string{"text", "json"} {
		if err := writeSummary(broken{}, form, admin.Summary{}); !errors.Is(err, errBroken) {
			t.Errorf("as %s: %v", form, err)
		}
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }
