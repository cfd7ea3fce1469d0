package main

type proxyCmd struct{}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *env) error { return nil }
