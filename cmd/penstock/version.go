package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCmd struct{}

// Run prints one line: the module's version, the commit where the build knows
// it, the compiler, and the platform.
func (*versionCmd) Run(e *env) error {
	_, err := fmt.Fprintf(e.stdout, "penstock %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version names this build.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info)
}

// versionOf returns the module's version, "v1.2.3" or "(devel)", and the commit
// if the go command recorded one. (It marks a tree with changes by "+dirty".)
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "(unknown)"
	}
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		// A pseudo-version ends with the beginning of the commit.
		if s.Key == "vcs.revision" && !strings.Contains(version, s.Value[:min(12, len(s.Value))]) {
			version += " " + s.Value
		}
	}
	return version
}
