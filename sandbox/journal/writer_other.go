//go:build !linux && !darwin

package journal

func bootID() string { return "" }

func processStart() string { return "" }

func machineIDs() (hardware, machine string) { return "", "" }
