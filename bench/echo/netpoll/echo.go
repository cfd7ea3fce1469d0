package main

import (
	"context"

	"github.com/cloudwego/netpoll"
)

// echo sends back all received bytes. The bytes are lent until Release, so they are copied
// into the writer's memory first.
func echo(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	in, err := r.Next(r.Len())
	if err != nil {
		return err
	}
	out, err := w.Malloc(len(in))
	if err != nil {
		return err
	}
	copy(out, in)
	if err := r.Release(); err != nil {
		return err
	}
	return w.Flush()
}
