package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/page"
	"github.com/penstock/penstock/proxy/internal/top"
)

type topCmd struct {
	processFlags
	Interval cli.Timeout `default:"1s" placeholder:"TIME" help:"Refresh at this interval, 200ms to 1m, or less often if the process answers slowly. (default: ${default})"`
	Once     bool        `help:"Print once and exit (the default without a terminal)."`
}

// Limits of --interval.
const (
	minInterval = 200 * time.Millisecond
	maxInterval = time.Minute
)

// Run shows a running process until the user ends it.
func (c *topCmd) Run(e *cli.Env) error {
	interval := c.Interval.Duration()
	if interval < minInterval || interval > maxInterval {
		return cli.Usagef("top: --interval %v: write %v to %v", interval, minInterval, maxInterval)
	}
	return c.ask(e, "top", func(ctx context.Context, client *admin.Client) error {
		cfg := top.Config{Source: client, Interval: interval, Input: os.Stdin, Output: e.Stdout, Getenv: e.Getenv}
		if c.Once || !onTerminal(e) {
			return top.Once(ctx, cfg)
		}
		if _, err := client.Status(ctx); err != nil {
			return err // there is nothing to show
		}
		return top.Run(ctx, cfg)
	})
}

// onTerminal reports whether the program runs on a terminal that can show a view.
func onTerminal(e *cli.Env) bool {
	_, in := cli.TerminalWidth(os.Stdin, e.Getenv)
	_, out := cli.TerminalWidth(e.Stdout, e.Getenv)
	return in && out
}

// pageCmd shows the page of the running process in a browser, which cannot open a unix socket.
type pageCmd struct {
	processFlags
	NoBrowser bool `help:"Print the address instead of opening a browser. The address works once."`
	Port      int  `placeholder:"N" help:"Serve the page at this port of 127.0.0.1. (default: a free port)"`
}

// Run serves the page until a signal.
func (c *pageCmd) Run(e *cli.Env) error {
	if c.Port < 0 || c.Port > 65535 {
		return cli.Usagef("page: --port %d: write 0 to 65535", c.Port)
	}
	return c.ask(e, "page", func(ctx context.Context, client *admin.Client) error {
		if _, err := client.Generations(ctx); err != nil { // reports here that no process runs
			return err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Port))
		if err != nil {
			return fmt.Errorf("page: %w", err)
		}
		return c.serve(ctx, e, l, client)
	})
}

// serve serves the page at a socket until ctx ends, and closes the socket.
func (c *pageCmd) serve(ctx context.Context, e *cli.Env, l net.Listener, client *admin.Client) error {
	gate := page.NewGate(l.Addr().String(), client)
	server := &http.Server{Handler: gate, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	defer server.Close()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	dir, err := os.MkdirTemp("", "penstock-page-")
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	defer os.RemoveAll(dir) // not earlier: nothing tells when the browser has read it
	opened := make(chan error, 1)
	go func() { opened <- c.open(e, gate.URL(), filepath.Join(dir, "page.html")) }()
	for ctx.Err() == nil {
		select {
		case err := <-served:
			return fmt.Errorf("page: %w", err)
		case err := <-opened:
			if err != nil {
				fmt.Fprintf(e.Stderr, "no browser was opened (%v): open this address, which works once\n", err)
				fmt.Fprintln(e.Stdout, gate.URL())
			}
		case <-ctx.Done():
		}
	}
	server.Close()
	<-served // http.ErrServerClosed
	return nil
}

// open opens the system's browser, or prints the address. It returns when the opening program has ended, perhaps only
// when the browser ends. The browser gets a file that leads to the address, because every user sees a program's arguments.
func (c *pageCmd) open(e *cli.Env, url, file string) error {
	if c.NoBrowser {
		fmt.Fprintln(e.Stdout, url)
		return nil
	}
	fmt.Fprintln(e.Stderr, "opening the browser; Ctrl-C ends the page")
	if err := os.WriteFile(file, fmt.Appendf(nil, `<!DOCTYPE html><meta http-equiv="refresh" content="0; url=%s"><title>penstock</title>`, url), 0o600); err != nil {
		return err
	}
	opener := exec.Command("xdg-open", file)
	opener.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C here does not end the browser
	return opener.Run()
}
