package main

import "github.com/penstock/penstock/loop"

// echo sends back all bytes received on c.
func echo(c *loop.Conn) error {
	for {
		if len(c.Buffered()) == 0 {
			if err := c.More(); err != nil {
				return err
			}
		}
		b, err := c.Next(len(c.Buffered()))
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}
