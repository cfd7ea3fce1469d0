package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/admin"
)

// lastWords is how long the program waits, at its end, for those who read its
// output, and for everything after a second signal.
const lastWords = time.Second

// errStuck is the end of a program that could not end in time.
var errStuck = fmt.Errorf("%w: it took too long to end them", proxy.ErrCut)

// logFlags are those of commands that log.
type logFlags struct {
	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the log on standard error, and of the summary on standard output. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level to log: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// logged runs a command with its loggers, and reports how it ended. Who writes to patient
// may have to wait.
func (f *logFlags) logged(e *env, command func(log, patient *slog.Logger) error) error {
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	direct := newLogger(e.stderr, f.Log, f.LogLevel)
	out := newSpool(e.stderr, func(n int64) {
		direct.Warn("lines of the log dropped, its reader is slow", "lines", n)
	})
	log := newLogger(out, f.Log, f.LogLevel)
	err := command(log, newLogger(patient{out}, f.Log, f.LogLevel))
	err = f.fail(out, log, err)
	time.AfterFunc(lastWords, cancel)
	out.close(last)
	return err
}

// fail reports why the program ends: as a line of the log where that is what
// others parse, otherwise as one for people.
func (f *logFlags) fail(out io.Writer, log *slog.Logger, err error) error {
	if err == nil {
		return nil
	}
	bad, _ := errors.AsType[*admin.ConfigError](err)
	switch {
	case f.Log == "json" && bad != nil:
		logProblems(log, bad)
	case f.Log == "json":
		log.Error(err.Error())
	case bad != nil:
		_, _ = io.WriteString(out, bad.Text)
	default:
		(&env{stderr: out}).complain(err)
	}
	if errors.As(err, new(usageError)) {
		return exitCode(exitUsage)
	}
	return exitCode(exitError)
}

// A server is what a command has serve.
type server interface {
	Summary() proxy.Summary
	Sessions(ctx context.Context) iter.Seq[proxy.Session]
	Cut()
}

// A service is a server that runs, and obeys signals meanwhile.
type service struct {
	form         string // of summaries
	log, patient *slog.Logger
	// reload is called for each signal that asks for it, and returns at once. Nil means
	// that those stop the program too.
	reload func()
}

// run has serve open a server, pass it on, and serve until it has ended, and obeys
// signals meanwhile: whatever the server, or who reads the output, is waiting for.
func (s *service) run(e *env, serve func(ctx context.Context, opened chan<- server) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all, leave := context.WithCancel(context.Background())
	defer leave()
	opened, ended := make(chan server), make(chan error, 1)
	go func() { ended <- serve(ctx, opened) }()
	var reloads <-chan os.Signal
	if s.reload != nil && e.reloads != nil {
		reloads = e.reloads()
	}
	cut := func() {}
	var told, listed *wishes
	var stuck <-chan time.Time
	var early bool
	for {
		select {
		case running := <-opened:
			cut = running.Cut
			told, listed = newSummaries(e.stdout, s.form, s.log, running), newListings(all, s.patient, running)
			if early {
				told.ask()
				listed.ask()
			}
		case err := <-ended:
			listed.end()
			told.finish(stuck)
			return err
		case <-e.asks:
			early = told == nil // it listens, and has not been passed on yet
			told.ask()
			listed.ask()
		case <-reloads:
			s.reload()
		case <-e.stops:
			if ctx.Err() == nil {
				stop()
			} else if stuck == nil {
				stuck = time.After(lastWords)
				go cut()
			}
		case <-stuck:
			return errStuck
		}
	}
}
