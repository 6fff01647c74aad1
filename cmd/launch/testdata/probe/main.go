// Probe replaces the installer in the launcher's tests: it prints its arguments, environment
// and files.
package main

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"airlift/bundle/head"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	file, path, _ := head.TakeOver()
	var said struct {
		PID            int
		Args           []string
		Env            []string
		Path, Name     string
		Exe, Input     string
		FileSize       int64
		InheritedFiles []string
	}
	said.PID, said.Args, said.Env, said.Path = os.Getpid(), os.Args, os.Environ(), path
	name, _ := os.ReadFile("/proc/self/comm")
	said.Name = strings.TrimSpace(string(name))
	said.Exe, _ = os.Readlink("/proc/self/exe")
	if file != nil {
		t, _, err := head.Read(file, path)
		if err != nil {
			panic(err)
		}
		said.FileSize = int64(t.FileSize())
	}
	for _, fd := range []string{"3", "4", "5", "6", "7", "8", "9"} {
		if target, err := os.Readlink("/proc/self/fd/" + fd); err == nil && strings.HasPrefix(target, "/") {
			said.InheritedFiles = append(said.InheritedFiles, target)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "input" {
		b, _ := io.ReadAll(os.Stdin)
		said.Input = string(b)
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		<-signals
		os.Exit(130)
	}
	os.Exit(len(os.Args) - 1)
}
