package bundle

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

// For any bytes: no panic, and every file but the original is an error of the bundle.
func FuzzOpen(f *testing.F) {
	whole, err := os.ReadFile("testdata/v1.bundle")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(stub())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		err := check(t, b)
		if err == nil && !bytes.Equal(b, whole) {
			t.Error("another file verifies")
		}
		if err != nil && fault.ExitCode(err) != fault.Bundle {
			t.Errorf("exit code %d: %v", fault.ExitCode(err), err)
		}
	})
}

// The same for any payload between correct frames.
func FuzzStream(f *testing.F) {
	whole, err := os.ReadFile("testdata/v1.bundle")
	if err != nil {
		f.Fatal(err)
	}
	tr, err := head.DecodeTrailer(whole[len(whole)-head.TrailerSize:])
	if err != nil {
		f.Fatal(err)
	}
	manifest, err := newSample().manifest.Encode()
	if err != nil {
		f.Fatal(err)
	}
	payload := whole[tr.PayloadOffset : tr.PayloadOffset+tr.PayloadSize]
	f.Add(payload, tr.HeadSize, tr.BinariesSize)
	f.Add(payload, tr.HeadSize-1, tr.BinariesSize+1)
	f.Add(payload, tr.HeadSize+tr.BinariesSize, uint64(0))
	f.Add([]byte{}, uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, payload []byte, first, binaries uint64) {
		forged := forge(manifest, payload, nil, nil)
		at := len(forged) - head.TrailerSize
		tr, err := head.DecodeTrailer(forged[at:])
		if err != nil {
			t.Fatal(err)
		}
		tr.HeadSize, tr.BinariesSize = first, binaries
		path := filepath.Join(t.TempDir(), "install")
		if err := os.WriteFile(path, append(forged[:at], tr.Encode()...), 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			wantFault(t, err, "the first two parts of the payload")
			return
		}
		defer file.Close()
		s, err := file.Stream(t.Context())
		if err == nil {
			err = readAll(s)
			s.Close()
		}
		// The launcher reads the beginning of the same bytes.
		if first := head.CopyInstaller(io.Discard, file.payload, path, file.trailer); err == nil && first != nil {
			err = fmt.Errorf("a payload that reads well has no installer: %v", first)
		} else if first != nil && fault.ExitCode(first) != fault.Bundle {
			err = first
		}
		if err != nil && fault.ExitCode(err) != fault.Bundle {
			t.Errorf("exit code %d: %v", fault.ExitCode(err), err)
		}
	})
}

// A manifest that can be decoded is valid and has the canonical form.
func FuzzManifest(f *testing.F) {
	good, err := newSample().manifest.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if fault.ExitCode(err) != fault.Bundle {
				t.Errorf("exit code %d: %v", fault.ExitCode(err), err)
			}
			return
		}
		if again, err := m.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("encodes to %d other bytes, %v", len(again), err)
		}
	})
}
