package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/scrape"
	sources "github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/rollback"
)

// compareEvery is how often, at most, the file is compared with the running configuration.
const compareEvery = 15 * time.Second

// measured is the counters of reloads, and the state of the file. The zero value is ready.
type measured struct {
	comparing sync.WaitGroup

	mu                           sync.Mutex
	reloads, refused, rolledBack int64
	ok                           bool
	success                      time.Time
	file                         metrics.FileState
	compared                     time.Time // start of the last comparison
	busy                         bool      // one is under way
	print                        string    // of the files that were compared last
}

// loaded notes the result of loading a configuration.
func (m *measured) loaded(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ok = err == nil; m.ok {
		m.success = time.Now()
	}
}

// reloaded counts a reload. One that came too late is none.
func (m *measured) reloaded(err error) {
	if errors.Is(err, rollback.ErrClosed) {
		return
	}
	m.loaded(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.refused++
		return
	}
	m.reloads++
}

func (m *measured) takenBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rolledBack++
}

// measure fills in a sample.
func (r *daemon) measure(sample *metrics.Sample) {
	r.loadBalancer.Metrics(sample)
	sample.Process.Version = cli.Version()
	of, c, m := r.keeper.Status(), &sample.Config, &r.measured
	c.Generation, c.Unconfirmed = of.Current, of.Pending != nil
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Reloads, c.Refused, c.RolledBack, c.LastOK, c.LastSuccess = m.reloads, m.refused, m.rolledBack, m.ok, m.success
	c.File = metrics.FileUnknown
	if r.file {
		c.File = m.file
		r.compareSoon()
	}
}

// compareSoon starts a comparison of the file with the running configuration, unless the last one is
// young. The caller holds measured.mu.
func (r *daemon) compareSoon() {
	m := &r.measured
	if m.busy || time.Since(m.compared) < compareEvery {
		return
	}
	m.busy, m.compared = true, time.Now()
	m.comparing.Go(func() {
		before, number := r.keeper.Current()
		print := fmt.Sprint(number) + fingerprint(before, r.source.name())
		m.mu.Lock()
		same := m.print == print
		m.mu.Unlock()
		var file metrics.FileState
		if !same {
			file = r.compare(before)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.busy = false; !same {
			m.file, m.print = file, print
		}
	})
}

// compare reads the file and compares it with a configuration.
func (r *daemon) compare(with *config.Config) metrics.FileState {
	switch now, err := r.source.load(); {
	case err != nil:
		return metrics.FileInvalid
	case len(config.Diff(with, now)) > 0:
		return metrics.FileDiffers
	}
	return metrics.FileSame
}

// fingerprint describes the files of a configuration, and those that its patterns match now, by the facts
// that a change of a file changes. Two that are equal need not be compared.
func fingerprint(cfg *config.Config, path string) string {
	files := append([]string{path}, cfg.Files...)
	for _, glob := range cfg.Globs {
		found, _ := filepath.Glob(glob) // the pattern was good
		files = append(files, found...)
	}
	slices.Sort(files)
	var print strings.Builder
	for _, file := range slices.Compact(files) {
		info, err := os.Stat(file)
		if err != nil {
			fmt.Fprintf(&print, "%s: %v\n", file, err)
			continue
		}
		fmt.Fprintf(&print, "%s %d %d %v\n", file, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return print.String()
}

// scrapeConfig is the address of the metrics, nil if there is none.
func scrapeConfig(m *config.Metrics) *scrape.Config {
	if m == nil {
		return nil
	}
	c := &scrape.Config{Address: m.Bind.Address, Allow: sources.NewSet(m.Allow), Token: m.Token.Value}
	if m.TLS != nil {
		c.Cert, c.Key = string(m.TLS.Cert), string(m.TLS.Key)
	}
	return c
}
