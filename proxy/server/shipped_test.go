package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A shipper follows a session log as the configuration in deploy/loki has it done: it parses each whole line, takes
// its time, its labels and its metadata, and keeps it by its trace id.
type shipper struct {
	layout           string
	fields           []string // of stage.json
	labels, metadata map[string]string
	streams          map[string]int
	byTrace          map[string][]map[string]any
	lines            int
	begun            []byte // a part of a line
}

// newShipper reads the configuration.
func newShipper(t *testing.T) *shipper {
	t.Helper()
	text, err := os.ReadFile("../../deploy/loki/config.alloy")
	if err != nil {
		t.Fatal(err)
	}
	pairs := func(stage, key string) map[string]string {
		found := regexp.MustCompile(regexp.QuoteMeta(stage) + ` \{\s*` + key + ` *= \{([^}]*)\}`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("no %s in the configuration", stage)
		}
		all := make(map[string]string)
		for _, pair := range strings.Split(string(found[1]), ",") {
			name, from, _ := strings.Cut(pair, "=")
			name = strings.TrimSpace(name)
			if all[name] = strings.Trim(strings.TrimSpace(from), `"`); all[name] == "" {
				all[name] = name
			}
		}
		return all
	}
	s := &shipper{labels: pairs("stage.labels", "values"), metadata: pairs("stage.structured_metadata", "values"), streams: make(map[string]int), byTrace: make(map[string][]map[string]any)}
	for name := range pairs("stage.json", "expressions") {
		s.fields = append(s.fields, name)
	}
	if !strings.Contains(string(text), `format = "RFC3339Nano"`) || s.metadata["trace_id"] != "id" {
		t.Fatal("the configuration has another form of times, or another trace id")
	}
	s.layout = time.RFC3339Nano
	return s
}

// take takes a line.
func (s *shipper) take(line []byte) error {
	var one map[string]any
	if err := json.Unmarshal(line, &one); err != nil {
		return err
	}
	for _, name := range s.fields {
		if v, ok := one[name].(string); !ok || v == "" {
			return fmt.Errorf("no %s", name)
		}
	}
	if at, err := time.Parse(s.layout, one["time"].(string)); err != nil || time.Since(at).Abs() > time.Hour {
		return fmt.Errorf("its time is %v, %w", one["time"], err)
	}
	var stream []string
	for _, label := range slices.Sorted(maps.Keys(s.labels)) {
		stream = append(stream, label+"="+fmt.Sprint(one[s.labels[label]]))
	}
	s.streams[strings.Join(stream, " ")]++
	id := one[s.metadata["trace_id"]].(string)
	s.byTrace[id] = append(s.byTrace[id], one)
	s.lines++
	return nil
}

// follow takes the lines of a file, and those of the one that follows it at its path, until stop is closed and no
// more come.
func (s *shipper) follow(path string, stop <-chan struct{}) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	for r := bufio.NewReader(f); ; {
		next := followed(f, path) // before the rest is read: the log writes to one of them at a time
		last := false
		select {
		case <-stop:
			last = true
		case <-time.After(time.Millisecond):
		}
		if err := s.takeAll(r); err != nil {
			return err
		}
		switch {
		case next != nil:
			f.Close()
			f = next
			r.Reset(f)
		case last:
			return nil
		}
	}
}

// takeAll takes the lines that there are. A part of one is kept for the next time.
func (s *shipper) takeAll(r *bufio.Reader) error {
	for {
		part, err := r.ReadBytes('\n')
		s.begun = append(s.begun, part...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.take(s.begun)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, s.begun)
		}
		s.begun = s.begun[:0]
	}
}

// followed opens the file at a path if it is another one; nil: it is not, or there is none.
func followed(f *os.File, path string) *os.File {
	next, err := os.Open(path)
	if err != nil {
		return nil
	}
	before, err1 := f.Stat()
	now, err2 := next.Stat()
	if err1 != nil || err2 != nil || os.SameFile(before, now) {
		next.Close()
		return nil
	}
	return next
}

// TestShippedSessions: a shipper that follows the log, over a rotation, has a line for each of 10,000 sessions with all
// that it needs, and finds exactly one by each trace id.
func TestShippedSessions(t *testing.T) {
	t.Parallel()

	const clients = 8
	sessions := full.Times(2000, 10_000)
	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: e, address: %q}], health_check: off}]`, sockets.Server(t, sockets.Echo)))
	path := filepath.Join(r.Dir, "sessions.log")
	s := newShipper(t)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.follow(path, stop) }()
	at := r.At("l")
	var busy sync.WaitGroup
	for k := range clients {
		busy.Go(func() {
			for i := k; i < sessions; i += clients {
				if err := shipped(at, i+1); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
				if i == sessions/2 {
					if err := os.Rename(path, path+".1"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	busy.Wait()
	r.Until("all clients have left", func() bool { return r.Summary().Connections.Active == 0 })
	if err := r.End(); err != nil {
		t.Error(err)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if c := r.Summary().SessionLog; s.lines != sessions || len(s.byTrace) != sessions || c.Lines != int64(sessions) || len(c.Dropped) > 0 || len(s.streams) != 1 || len(s.begun) > 0 {
		t.Errorf("%d lines of %d trace ids in the streams %v, then %q; %+v", s.lines, len(s.byTrace), s.streams, s.begun, c)
	}
	sizes := make(map[float64]int)
	for id, found := range s.byTrace {
		if len(id) != 32 || len(found) != 1 {
			t.Errorf("the trace id %q finds %d sessions", id, len(found))
			continue
		}
		sizes[found[0]["bytes_to_endpoint"].(float64)]++
	}
	for i := range sessions { // each session is there, by what it has sent
		if sizes[float64(i+1)] != 1 {
			t.Fatalf("session %d is there %d times", i, sizes[float64(i+1)])
		}
	}
}

// shipped is a session of so many bytes.
func shipped(at string, n int) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(make([]byte, n)); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}
