"""What of the site is not in docs/: pages at the top of the repository, and the status document.

Rule: each text has one home. README.md is the site's first page.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "index.md": "README.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}


# Where the pictures are that benchmarks/ makes, and where pages find them.
PICTURES = ("benchmarks/results", "pictures")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the pictures of the benchmark."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    source, target = PICTURES
    for picture in sorted((ROOT / source).glob("*.svg")):
        files.append(File.generated(config, f"{target}/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **others: object) -> str:
    """Have links point to pages of the site. In the files they are as seen from the repository, so both can be read."""
    if page.file.src_uri in PAGES:
        markdown = markdown.replace("](docs/", "](")
        for target, source in PAGES.items():
            markdown = markdown.replace(f"]({source}", f"]({target}")
    for target, source in PAGES.items():
        markdown = markdown.replace(f"../{source}", target)
    markdown = markdown.replace(f"../{PICTURES[0]}/", f"{PICTURES[1]}/")
    return markdown + (ENDS[page.file.src_uri]() if page.file.src_uri in ENDS else "")


def status_document() -> str:
    """The file that documents the status document."""
    return f"\n```python\n{(ROOT / 'deskgrid/wire/status.py').read_text(encoding='utf-8')}```\n"


# Pages whose ends are taken from the program.
ENDS = {"reference/formats.md": status_document}
