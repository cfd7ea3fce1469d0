package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

// Run prints one line: the module's version, the commit where the build knows
// it, and the compiler.
func (*versionCmd) Run(e *env) error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Fprintf(e.stdout, "penstock %s %s %s/%s\n",
		buildVersion(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// buildVersion names the build: "v1.2.3", "(devel)", with the commit that the
// go command recorded, and "+dirty" when the tree had changes.
func buildVersion(info *debug.BuildInfo) string {
	if info == nil {
		return "(unknown)"
	}
	version, revision, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if version == "" {
		version = "(devel)"
	}
	if revision == "" {
		return version
	}
	return version + revision + dirty
}
