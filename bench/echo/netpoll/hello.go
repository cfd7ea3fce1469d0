package main

import (
	"context"

	"github.com/cloudwego/netpoll"

	"github.com/penstock/penstock/bench/echo/part"
)

// hello answers a received request, and waits for its end.
func hello(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	in, err := r.Peek(r.Len())
	for n := 0; err == nil; in, err = r.Peek(len(in) + 1) {
		if n = part.Request(in); n == 0 {
			continue
		}
		if err = r.Skip(n); err != nil {
			return err
		}
		if _, err = w.WriteBinary(part.Response); err != nil {
			return err
		}
		if err = r.Release(); err != nil {
			return err
		}
		return w.Flush()
	}
	return err
}
