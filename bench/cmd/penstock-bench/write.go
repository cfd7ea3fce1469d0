package main

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/cli"
)

// Bounds of the flags of penstock-bench write.
const (
	leastTotal = 1 << 20
	mostPiece  = 1 << 20
)

// writeCmd compares ways to write pieces of data to one connection.
type writeCmd struct {
	Sizes   []cli.Size `placeholder:"SIZE,..." help:"Lengths of the pieces (default: 64,256,1300,4KiB,16KiB,64KiB)."`
	Message bool       `default:"true" negatable:"" help:"Also messages of a header, a payload and a trailer, 16 KiB in all."`
	Nagle   bool       `default:"true" negatable:"" help:"Also the time of two writes before a read under Nagle's algorithm, beside one gathered write."`
	Rounds  *int       `placeholder:"N" help:"Rounds in which the ways take turns; each has new processes and 16 turns of each way (default: 4)."`
	Total   *cli.Size  `placeholder:"SIZE" help:"Bytes that each way writes in a round, whatever the size of the pieces (default: 256MiB)."`
	Quick   bool       `help:"2 rounds of 16MiB: a few seconds, and figures to match."`

	Syscalls bool   `default:"true" negatable:"" help:"Count system calls, and where perf may cache misses, in trials of their own."`
	Profile  string `placeholder:"DIR" help:"Take a CPU profile of every way with every size, in trials of their own, to DIR/WAY-SIZE.pprof."`
	JSON     string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*writeCmd) Help() string {
	return `Pieces of data are written to one connection over loopback: by net.Conn.Write,
bufio.Writer, net.Buffers, and Penstock's vecio on a connection and on a loop. Each
of them is a process of its own, and the receiver another one, which discards.

A flame graph of where a way spends its time:

    penstock-bench write --sizes 1300 --profile profiles
    go tool pprof -http=: profiles/vecio-1300.pprof     # View, Flame Graph`
}

// Validate is called by kong once the flags are read.
func (c *writeCmd) Validate() error {
	for _, n := range c.Sizes {
		if n < 1 || n > mostPiece {
			return cli.Usagef("--sizes %d: write sizes from 1 to 1MiB", n)
		}
	}
	switch {
	case len(slices.Compact(slices.Sorted(slices.Values(c.Sizes)))) < len(c.Sizes):
		return cli.Usagef("--sizes has a size twice: write each once")
	case c.Rounds != nil && *c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", *c.Rounds)
	case c.Total != nil && *c.Total < leastTotal:
		return cli.Usagef("--total %d: write 1MiB or more", *c.Total)
	case strings.HasSuffix(c.Profile, ".pprof"):
		return cli.Usagef("--profile %s: write a directory, which gets a file for each way and size", c.Profile)
	}
	return nil
}
