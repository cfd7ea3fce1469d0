package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/server"
)

// finalFlush is the time, at the end of the program, for readers of its output, and for
// everything after a second signal.
const finalFlush = time.Second

// errStuck is the error of a program that could not end in time.
var errStuck = fmt.Errorf("%w: it took too long to end them", server.ErrCut)

// logFlags are the flags of commands that log.
type logFlags struct {
	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the log on standard error, and of the summary on standard output. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level to log: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// logged runs a command with its logger, and reports its error.
func (f *logFlags) logged(e *cli.Env, command func(log *slog.Logger) error) error {
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	direct := newLogger(e.Stderr, f.Log, f.LogLevel)
	out := newAsyncWriter(e.Stderr, func(n int64) {
		direct.Warn("lines of the log dropped, its reader is slow", "lines", n)
	})
	log := newLogger(out, f.Log, f.LogLevel)
	err := command(log)
	err = f.fail(out, log, err)
	time.AfterFunc(finalFlush, cancel)
	out.close(last)
	return err
}

// fail reports the error with which the program ends: as a log line if programs read the log,
// otherwise as text.
func (f *logFlags) fail(out io.Writer, log *slog.Logger, err error) error {
	if err == nil {
		return nil
	}
	bad, _ := errors.AsType[*badFile](err)
	switch {
	case f.Log == "json" && bad != nil:
		logProblems(log, bad)
	case f.Log == "json":
		log.Error(err.Error())
	case bad != nil:
		_, _ = io.WriteString(out, bad.Text)
	default:
		(&cli.Env{Stderr: out}).PrintError(err)
	}
	if errors.As(err, new(cli.UsageError)) {
		return cli.ExitCode(cli.ExitUsage)
	}
	return cli.ExitCode(cli.ExitError)
}

// A service is a running server that handles signals meanwhile.
type service struct {
	form string // of the summary
	log  *slog.Logger
	// reload is called for each SIGHUP, and must return at once. If it is nil SIGHUP stops the
	// program, as SIGTERM does.
	reload func()
}

// run calls serve, which opens a server, passes it on, and serves until it has ended.
// Meanwhile run handles signals, even if the server, or a reader of the output, is blocked. The
// last line on standard output is the summary.
func (s *service) run(e *cli.Env, serve func(ctx context.Context, opened chan<- loadBalancer) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	opened, ended := make(chan loadBalancer), make(chan error, 1)
	go func() { ended <- serve(ctx, opened) }()
	var reloads <-chan os.Signal
	if s.reload != nil && e.Reloads != nil {
		reloads = e.Reloads()
	}
	var running loadBalancer
	var stuck <-chan time.Time
	for {
		select {
		case running = <-opened:
		case err := <-ended:
			s.summarize(e.Stdout, running, stuck)
			return err
		case <-reloads:
			s.reload()
		case <-e.Stops:
			if ctx.Err() == nil {
				stop()
			} else if stuck == nil {
				stuck = time.After(finalFlush)
				if running != nil {
					go running.Cut()
				}
			}
		case <-stuck:
			return errStuck
		}
	}
}

// summarize writes the summary of a server that was opened: until stuck, or for finalFlush if
// that is nil.
func (s *service) summarize(w io.Writer, balancer loadBalancer, stuck <-chan time.Time) {
	if balancer == nil {
		return
	}
	if stuck == nil {
		stuck = time.After(finalFlush)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := writeSummary(w, s.form, balancer.Summary()); err != nil {
			s.log.Warn("summary not written", "error", err)
		}
	}()
	select {
	case <-written:
	case <-stuck:
	}
}
