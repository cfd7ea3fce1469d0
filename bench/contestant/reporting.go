package contestant

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/penstock/penstock/bench/process"
)

// ReportingName is the kind that is `penstock run` with the smallest file and all that reports on its sessions.
const ReportingName = "penstock-run-reporting"

// scrapeEvery is the interval at which its metrics are scraped.
const scrapeEvery = time.Second

// reportingFile is the smallest file with a session log and traces.
var reportingFile = template.Must(template.New("reporting").Parse(smallestText + `session_log: {to: "{{.Log}}"}
traces: {endpoint: "{{.Collector}}", protocol: http/protobuf, sample: 1}
`))

// reporting starts `penstock run` with a session log in JSON to a file, 1 % of the sessions traced to a collector in this
// process, and a scrape of its metrics each second, by this process too.
type reporting struct{ own }

func (reporting) config(_ context.Context, s *Setting) string {
	return reportingConfig(s, "sessions.log", "http://127.0.0.1:0")
}

func reportingConfig(s *Setting, log, collector string) string {
	return execute(reportingFile, map[string]any{"Listen": s.listen(), "Upstream": s.Upstream, "Log": log, "Collector": collector})
}

func (reporting) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	dir, err := os.MkdirTemp(s.Dir, "penstock-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	collector, stop, err := collect()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file, admin := filepath.Join(dir, "penstock.yaml"), ""
	c, err := startOwn(ctx, name, s, dir, func(socket string) (process.Spec, error) {
		admin = socket
		text := fmt.Sprintf("admin: {bind: %q}\n%s", socket, reportingConfig(s, filepath.Join(dir, "sessions.log"), collector))
		return s.Program.Penstock(name, s.Program.Run, "--config", file, "--log", "json"), os.WriteFile(file, []byte(text), 0o600)
	})
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer stop()
		scrape(admin, c.child.Done())
	}()
	return c, nil
}

// collect starts a collector of traces that takes everything and keeps nothing.
func collect() (address string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has gone sends again
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	go func() { _ = server.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() { server.Close() }, nil
}

// scrape reads the metrics at an admin socket until done. A scrape that fails is followed by the next one.
func scrape(socket string, done <-chan struct{}) {
	path, _ := filepath.Abs(socket[len("unix:"):])
	client := http.Client{Timeout: 10 * scrapeEvery, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for {
		if r, err := client.Get("http://localhost/metrics"); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}
