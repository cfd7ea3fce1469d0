package main

import "github.com/penstock/penstock/loop"

// idle sends back the bytes that have come.
func idle(c *loop.Conn) error {
	b, err := c.Next(len(c.Buffered()))
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	return loop.ErrIdle
}
