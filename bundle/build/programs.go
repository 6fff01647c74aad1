package build

import (
	"bytes"
	"debug/elf"

	"airlift/fault"
)

// checkProgram makes sure that program, called name in messages, can start on
// any host: that it is a static Linux executable for the bundle's architecture.
// Hosts need no libc.
func checkProgram(name string, program []byte, arch string) error {
	hint := "give the " + name + " built for the bundle's architecture with CGO_ENABLED=0"
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fault.New(fault.Usage, hint, "reading the %s: %w", name, err)
	}
	want, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if ok && f.Machine != want {
		return fault.New(fault.Usage, hint, "the %s is for %v, not for %v (%s)", name, f.Machine, want, arch)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fault.New(fault.Usage, hint, "the %s is no executable but %v", name, f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Usage, hint, "the %s is dynamically linked", name)
		}
	}
	return nil
}
