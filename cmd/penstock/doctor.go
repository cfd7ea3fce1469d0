package main

// doctorCmd says what this host and this process can do.
type doctorCmd struct {
	JSON bool `name:"json" help:"One JSON object on standard output instead of a text."`
}
