//! What an executable says about itself: the processor it is for, and whether it needs a dynamic linker.

use anyhow::{Context, Result, bail, ensure};

/// Program header type of the path of the dynamic linker.
const PT_INTERP: u32 = 3;

/// The architecture's name in Go, which images use, of a program that runs where there is nothing else.
pub fn architecture(program: &[u8]) -> Result<&'static str> {
    // 64 bits, little endian.
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "not a program for 64-bit Linux");
    let architecture = match half(program, 18)? {
        62 => "amd64",
        183 => "arm64",
        other => bail!("made for a processor that images are not built for (ELF machine {other})"),
    };
    ensure!(!is_dynamic(program)?, "it needs a dynamic linker, and the image has none: build it for a musl target");
    Ok(architecture)
}

fn is_dynamic(program: &[u8]) -> Result<bool> {
    let table = usize::try_from(u64::from_le_bytes(field(program, 32)?))?;
    let (size, count) = (usize::from(half(program, 54)?), usize::from(half(program, 56)?));
    for index in 0..count {
        if u32::from_le_bytes(field(program, table.saturating_add(index * size))?) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn half(program: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(field(program, at)?))
}

fn field<const N: usize>(program: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = at.checked_add(N).and_then(|end| program.get(at..end)).context("the program is cut short")?;
    Ok(bytes.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a program with one program header of this type.
    fn program(machine: u16, header: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&header.to_le_bytes());
        bytes
    }

    #[test]
    fn a_static_program_tells_its_architecture() {
        assert_eq!(architecture(&program(62, 1)).unwrap(), "amd64");
        assert_eq!(architecture(&program(183, 1)).unwrap(), "arm64");
    }

    #[test]
    fn what_would_not_start_is_refused_with_a_cause() {
        for (bytes, cause) in [
            (program(62, PT_INTERP), "dynamic linker"),
            (program(243, 1), "machine 243"),
            (program(62, 1)[..60].to_vec(), "cut short"),
            (b"#!/bin/sh\n".to_vec(), "not a program"),
        ] {
            assert!(architecture(&bytes).unwrap_err().to_string().contains(cause), "{cause}");
        }
    }
}
