package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/page"
)

// pageCmd shows the page of the running process in a browser, which cannot open a unix socket.
type pageCmd struct {
	processFlags
	NoBrowser bool `help:"Print the address, which works once, and open no browser."`
	Port      int  `placeholder:"N" help:"Port of 127.0.0.1 that the browser is served at. (default: a free one)"`
}

// Run serves the page until a signal.
func (c *pageCmd) Run(e *cli.Env) error {
	if c.Port < 0 || c.Port > 65535 {
		return cli.Usagef("page: --port %d: write 0 to 65535", c.Port)
	}
	return c.ask(e, "page", func(ctx context.Context, client *admin.Client) error {
		if _, err := client.Generations(ctx); err != nil { // so that a process that does not run is reported here
			return err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Port))
		if err != nil {
			return fmt.Errorf("page: %w", err)
		}
		return c.serve(ctx, e, l, client)
	})
}

// serve serves the page at a socket, which it closes, until ctx ends.
func (c *pageCmd) serve(ctx context.Context, e *cli.Env, l net.Listener, client *admin.Client) error {
	gate := page.NewGate(l.Addr().String(), client)
	server := &http.Server{Handler: gate, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	defer server.Close()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	opened := make(chan error, 1)
	go func() { opened <- c.open(e, gate.URL()) }()
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

// open opens the browser of the system, or prints the address. It returns when the program that opens browsers has
// ended, which may be when the browser does.
func (c *pageCmd) open(e *cli.Env, url string) error {
	if c.NoBrowser {
		fmt.Fprintln(e.Stdout, url)
		return nil
	}
	fmt.Fprintln(e.Stderr, "opening the browser; Ctrl-C ends the page")
	opener := exec.Command("xdg-open", url)
	opener.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C here does not end the browser
	return opener.Run()
}
