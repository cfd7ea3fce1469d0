package cli

import (
	"runtime/debug"
	"strings"
)

// Version returns the version of this build.
func Version() string {
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
