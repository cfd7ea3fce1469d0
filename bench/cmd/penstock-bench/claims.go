package main

// claimsCmd reprints the page of claims with figures of this machine.
type claimsCmd struct {
	Claims []string `arg:"" optional:"" name:"claim" help:"Which, with all there is to say of it (default: all, in short)."`
	JSON   string   `name:"json" placeholder:"FILE" help:"Write the figures to FILE as JSON, too; - is standard output, and the text then goes to standard error."`
}
