package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/metrics"
)

// scrape returns the metrics of the running process.
func (r *runRig) scrape() string {
	r.t.Helper()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(r.dir, "admin.sock"))
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://localhost/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s, %v: %s", response.Status, err, body)
	}
	return string(body)
}

// TestReloadsAreMeasured: reloads are counted by their results, with the state of the last one.
func TestReloadsAreMeasured(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	measured := func(lines ...string) {
		t.Helper()
		text := r.scrape()
		for _, line := range lines {
			if !strings.Contains(text, "\npenstock_config_"+line+"\n") {
				t.Errorf("no %s in\n%s", line, regexp.MustCompile("(?m)^penstock_config_.*").FindAllString(text, -1))
			}
		}
	}
	measured("generation 1", `reloads_total{result="success"} 0`, "last_reload_successful 1", "unconfirmed 0")
	r.write("one", "two")
	r.tells(0, "reload", "--config", r.file)
	measured("generation 2", `reloads_total{result="success"} 1`, "last_reload_successful 1")
	r.writeText("listeners: [")
	r.tells(1, "reload", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
	measured("generation 2", `reloads_total{result="refused"} 1`, "last_reload_successful 0")
	r.write("one")
	r.tells(0, "reload", "--config", r.file, "--confirm", "5m")
	measured("unconfirmed 1", "last_reload_successful 1", `reloads_total{result="success"} 2`)
	r.tells(0, "rollback", "--config", r.file)
	measured("generation 2", "unconfirmed 0", `reloads_total{result="rolled_back"} 1`)
}

// TestFileBesideTheConfiguration: the file is compared with the running configuration, and never said to be the
// same before that.
func TestFileBesideTheConfiguration(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	state := func() string {
		m := regexp.MustCompile(`penstock_config_file_state\{state="([a-z]+)"\} 1\n`).FindAllStringSubmatch(r.scrape(), -1)
		if len(m) != 1 {
			t.Fatalf("%q", m)
		}
		return m[0][1]
	}
	if got := state(); got != "unknown" && got != "same" {
		t.Errorf("at first: %s", got)
	}
	condition.Await(t, "the file is the same", func() bool { return state() == "same" })
}

// TestComparison: a change of the file, or of the configuration, has it compared again.
func TestComparison(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "p.yaml")
	write := func(text string) {
		t.Helper()
		rig := &runRig{t: t, file: path}
		rig.writeText(text)
	}
	text := "listeners: [{name: %s, bind: \":2000\", upstream: u}]\nupstreams: [{name: u, endpoints: [\"127.0.0.1:1\"]}]\n"
	write(fmt.Sprintf(text, "a"))
	r := &daemon{daemonConfig: daemonConfig{source: newFileSource(path, nil)}}
	cfg, err := r.source.load()
	if err != nil {
		t.Fatal(err)
	}
	check := func(with *config.Config, want metrics.FileState) string {
		t.Helper()
		if got := r.compare(with); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		return fingerprint(with, path)
	}
	first := check(cfg, metrics.FileSame)
	write(fmt.Sprintf(text, "other"))
	second := check(cfg, metrics.FileDiffers)
	write("listeners: [")
	third := check(cfg, metrics.FileInvalid)
	if first == second || second == third || fingerprint(cfg, path) != third {
		t.Errorf("%q, %q, %q", first, second, third)
	}
}

// TestAddressOfTheMetrics: it follows the configuration, a reload that cannot have its address changes nothing,
// and it ends with the process's drain.
func TestAddressOfTheMetrics(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	with := func(at string) {
		t.Helper()
		r.writeText(r.text("admin.sock", "one") + "metrics: {bind: \"" + at + "\", allow: [127.0.0.0/8]}\n")
	}
	get := func(at string) int {
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := (&http.Client{Transport: transport}).Get("http://" + at + "/metrics")
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	at := free()
	with(at)
	if out, _ := r.tells(0, "reload", "--config", r.file); !strings.Contains(out, "metrics added") {
		t.Errorf("got %q", out)
	}
	if code := get(at); code != 200 {
		t.Errorf("got %d", code)
	}
	with(taken.Addr().String())
	if _, text := r.tells(1, "reload", "--config", r.file); !strings.Contains(text, "address already in use") {
		t.Errorf("got %q", text)
	}
	if code := get(at); code != 200 {
		t.Errorf("after a reload that failed: %d", code)
	}
	r.write("one")
	r.tells(0, "reload", "--config", r.file)
	if code := get(at); code != 0 {
		t.Errorf("without an address: %d", code)
	}
}
