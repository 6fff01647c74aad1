package build

import (
	"bytes"
	"debug/elf"

	"airlift/fault"
)

// checkInstaller makes sure that program can be a bundle's first bytes: a
// static Linux executable for the bundle's architecture. Hosts need no libc.
func checkInstaller(program []byte, arch string) error {
	const hint = "give the install program built for the bundle's architecture with CGO_ENABLED=0"
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fault.New(fault.Usage, hint, "reading the install program: %w", err)
	}
	want, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if ok && f.Machine != want {
		return fault.New(fault.Usage, hint, "the install program is for %v, not for %v (%s)", f.Machine, want, arch)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fault.New(fault.Usage, hint, "the install program is no executable but %v", f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Usage, hint, "the install program is dynamically linked")
		}
	}
	return nil
}
