package fakesigstore

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/fakesites"
)

// Binary returns an executable file that Go and its linker say is this command of Kubernetes in this
// version. Its only code is its header.
func Binary(name, version string, machine elf.Machine) []byte {
	arch := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[machine]
	// As written by cmd/link: https://pkg.go.dev/debug/buildinfo reads it.
	const edge = "0123456789abcdef"
	modules := edge + fmt.Sprintf("path\tk8s.io/kubernetes/cmd/%s\nbuild\tGOARCH=%s\nbuild\tGOOS=linux\n", name, arch) + edge
	info := append([]byte("\xff Go buildinf:\x08\x02"), make([]byte, 16)...)
	for _, text := range []string{"go1.26", modules} {
		info = binary.AppendUvarint(info, uint64(len(text)))
		info = append(info, text...)
	}
	const begin, address = 128, 0x400000
	content := append(info, "\x00"+version+"\x00"...)
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	size := uint64(len(content))
	_ = binary.Write(&b, binary.LittleEndian, h)
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: begin, Vaddr: address, Paddr: address, Filesz: size, Memsz: size, Align: 16})
	b.Write(make([]byte, begin-b.Len()))
	b.Write(content)
	return b.Bytes()
}

// machines are the supported processors, by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// putBinary replaces a file of a release on dl.k8s.io, and its checksum, by a Binary.
func putBinary(u *fakesites.Upstream, file, version, arch string) {
	u.PutFile(file, Binary(file[strings.LastIndex(file, "/")+1:], version, machines[arch]))
}

// putImage replaces an image of Kubernetes by CommandImages of the version. Others stay.
func putImage(u *fakesites.Upstream, reference, version string) {
	name, ok := strings.CutPrefix(strings.TrimSuffix(reference, ":"+version), "registry.k8s.io/kube-")
	if ok {
		u.PushIndex(reference, CommandImages(u.T(), "kube-"+name, version))
	}
}

// CommandImages returns an image with a Binary for each processor.
func CommandImages(t testing.TB, name, version string) map[string]v1.Image {
	byArch := map[string]v1.Image{}
	for arch, machine := range machines {
		byArch[arch] = fakesites.ImageOf(t, arch, fakesites.FilesLayer(t, map[string][]byte{"etc/passwd": nil}),
			fakesites.FilesLayer(t, map[string][]byte{"usr/local/bin/" + name: Binary(name, version, machine)}))
	}
	return byArch
}
