package main

import (
	"github.com/penstock/penstock/bench/echo/part"
	"github.com/penstock/penstock/loop"
)

// hello answers the requests received on c.
func hello(c *loop.Conn) error {
	for {
		n := part.Request(c.Buffered())
		if n == 0 {
			if err := c.More(); err != nil {
				return err
			}
			continue
		}
		if _, err := c.Next(n); err != nil {
			return err
		}
		if _, err := c.Write(part.Response); err != nil {
			return err
		}
	}
}
