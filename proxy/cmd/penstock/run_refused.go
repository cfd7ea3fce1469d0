package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
)

// A readFile is a configuration that was read, and the facts of its files at that time. See fingerprint.
type readFile struct {
	cfg        *config.Config
	print      string
	generation int // in which it was in force; 0: in none yet
}

// A refusedFile is the configuration that was rolled back last, for as long as the file still has it. The zero
// value is ready: there is none.
type refusedFile struct {
	mu   sync.Mutex
	read *readFile // nil: none, or the file has another one by now
	is   admin.RefusedFile
}

// set notes a rollback to another configuration. read is the file as it was in force last.
func (f *refusedFile) set(path string, read *readFile, c *rollback.Change, to *config.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read = read; read == nil || len(config.Diff(read.cfg, to)) == 0 {
		f.read = nil
		return
	}
	f.is = admin.RefusedFile{Path: path, Generation: read.generation, At: time.Now().Truncate(time.Millisecond), By: c.By, Why: c.Why, Automatic: c.By == rollback.Itself}
}

// forget notes that another configuration is in force.
func (f *refusedFile) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = nil
}

// get returns it if the source still has that configuration; nil: it does not, or there is none. The source is
// read only if its files have other facts than before.
func (f *refusedFile) get(from source) *admin.RefusedFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read == nil {
		return nil
	}
	if print := fingerprint(f.read.cfg, from.name()); print != f.read.print {
		now, err := from.load()
		if err != nil || len(config.Diff(f.read.cfg, now)) > 0 {
			f.read = nil
			return nil
		}
		f.read = &readFile{f.read.cfg, print, f.read.generation}
	}
	is := f.is
	return &is
}

// A fileState is whether the file can be used, and the last reload if it was refused. The file is read only if its
// files have other facts than at the last time, or once in a while as long as it, or a certificate that it names, cannot be used: files
// that it names may be mended, or broken, meanwhile. The zero value is a file that can be used.
type fileState struct {
	mu      sync.Mutex
	print   string
	looked  time.Time            // when the file was read last
	problem string               // "": there is none
	reload  *admin.RefusedReload // nil: it was not refused
}

// read notes how the file was, as it was read: with err it cannot be used.
func (f *fileState) read(print string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.print, f.problem = print, fileProblem(err)
}

// reloaded notes the result of a reload.
func (f *fileState) reloaded(by string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reload = nil
	if err == nil {
		return
	}
	f.reload = &admin.RefusedReload{At: time.Now().Truncate(time.Millisecond), By: by, Error: err.Error()}
	if text := fileProblem(err); text != "" {
		f.reload.Error = text
	}
}

// get fills in a status. A refused reload is over once the file has the configuration in force again.
func (f *fileState) get(from source, inForce *config.Config, s *admin.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := (f.problem != "" || certificateRefused(s)) && time.Since(f.looked) >= readAgain
	if print := fingerprint(inForce, from.name()); print != f.print || again {
		now, err := from.load()
		f.print, f.problem, f.looked = print, fileProblem(err), time.Now()
		if err == nil && len(config.Diff(inForce, now)) == 0 {
			f.reload = nil
		}
	}
	s.ReloadRefused, s.FileProblem = f.reload, f.problem
}

// readAgain is how long a file that cannot be used is taken as it is.
const readAgain = 5 * time.Second

// certificateRefused reports whether a certificate has changed into one that cannot be used.
func certificateRefused(s *admin.Status) bool {
	refused := func(c admin.Certificate) bool { return c.Refused != "" }
	return slices.ContainsFunc(s.MetricsCertificates, refused) ||
		slices.ContainsFunc(s.Listeners, func(l admin.Listener) bool {
			return l.AuthoritiesRefused != "" || slices.ContainsFunc(l.Certificates, refused)
		}) ||
		slices.ContainsFunc(s.Upstreams, func(u admin.Upstream) bool {
			return u.AuthoritiesRefused != "" || slices.ContainsFunc(u.Certificates, refused)
		})
}

// fileProblem says in a line, without its content, that a file cannot be used; "": that is not the error.
func fileProblem(err error) string {
	bad, ok := errors.AsType[*admin.ConfigError](err)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s has %s: penstock check %[1]s shows them", bad.Path, count(len(bad.Problems), "problem"))
}

// Status implements [admin.Balancer], with the state of the file.
func (r *daemon) Status() admin.Status {
	s := r.loadBalancer.Status()
	s.Refused = r.refused.get(r.source)
	s.MetricsCertificates = admin.CertificatesOf(r.scrape.Pair())
	if r.file {
		inForce, _ := r.keeper.Current()
		r.onDisk.get(r.source, inForce, &s)
	}
	return s
}

// Rollback returns to a generation; 0 is the one before. No reload comes between it and its result.
func (r *daemon) Rollback(ctx context.Context, to int, actor string) (done admin.RolledBack, err error) {
	if err := r.take(ctx); err != nil {
		return done, err
	}
	defer func() { <-r.turn }()
	now, err := r.keeper.Rollback(ctx, to, actor)
	if done.Generation, done.Changes = now.Generation, now.Changes; err != nil {
		return done, err
	}
	done.Ended, done.Restored = r.takenBack.ended, r.takenBack.restored
	done.Refused = r.refused.get(r.source)
	return done, nil
}
