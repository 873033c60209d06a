//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// The node's network has no way out, and none in. What must pass goes through sockets in the cluster's folder, which
// both sides see: to the API server from the node, to the kubelet and to pods from outside.

// forward serves all connections to l by one to the address. It returns when l is closed.
func forward(l net.Listener, network, address string) {
	serve(l, func(conn net.Conn) {
		if far, err := net.DialTimeout(network, address, 10*time.Second); err == nil {
			join(conn, far)
		}
	})
}

// dialer serves connections to l that say where they want to get to in a first line, and hears "ok" or why not.
func dialer(l net.Listener) {
	serve(l, func(conn net.Conn) {
		r := bufio.NewReaderSize(conn, 256)
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		far, err := net.DialTimeout("tcp", strings.TrimSpace(string(line)), 10*time.Second)
		if err != nil {
			fmt.Fprintf(conn, "%v\n", err)
			return
		}
		fmt.Fprintln(conn, "ok")
		join(conn, far) // r is empty: who asks waits for the answer
	})
}

func serve(l net.Listener, each func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			each(conn)
		}()
	}
}

// join copies both ways, half-closes included, until both ways have ended.
func join(a, b net.Conn) {
	var ways sync.WaitGroup
	way := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	ways.Go(func() { way(a, b) })
	ways.Go(func() { way(b, a) })
	ways.Wait()
	a.Close()
	b.Close()
}
