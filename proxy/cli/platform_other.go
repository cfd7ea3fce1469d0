//go:build !linux

package cli

// The programs are for Linux. The library builds elsewhere, too.
var _ = penstock_runs_on_Linux_only
