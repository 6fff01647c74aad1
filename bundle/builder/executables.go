package builder

import (
	"bytes"
	"debug/elf"

	"airlift/internal/fault"
)

// checkExecutable checks that the launcher or the installer is a static Linux
// executable for the bundle's architecture. Hosts need not have a libc.
func checkExecutable(name string, executable []byte, arch string) error {
	hint := "use a " + name + " that was built for the bundle's architecture with CGO_ENABLED=0"
	f, err := elf.NewFile(bytes.NewReader(executable))
	if err != nil {
		return fault.New(fault.Usage, "reading the %s: %w", name, err).Hint(hint)
	}
	want, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if ok && f.Machine != want {
		return fault.New(fault.Usage, "the %s was built for %v, not for %v (%s)", name, f.Machine, want, arch).Hint(hint)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fault.New(fault.Usage, "the %s is not an executable (ELF type %v)", name, f.Type).Hint(hint)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Usage, "the %s is dynamically linked", name).Hint(hint)
		}
	}
	return nil
}
