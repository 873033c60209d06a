package main

import (
	"runtime/debug"
)

// version returns what the build knows of itself: the module's version, or the commit of a clone.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	v, commit, changed := info.Main.Version, "", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if v == "" || v == "(devel)" {
		v = "built from source"
	}
	if commit != "" {
		v += ", commit " + commit[:min(12, len(commit))]
		if changed {
			v += " with changes"
		}
	}
	return v + ", " + info.GoVersion
}
