//go:build !linux

package main

import "errors"

var errLinux = errors.New("a cluster needs Linux")

func up(string, bool) error { return errLinux }
func initNode(string) error { return errLinux }
func runNode(string) error  { return errLinux }
