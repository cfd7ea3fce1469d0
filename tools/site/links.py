"""A hook of mkdocs: pages link to other files of the repository, which the site does not have."""

import logging
import os
import re

log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown, page, config, **_):
    """Makes a link to a file beside the pages, or to a directory, one to the repository; a link to a file that is not there fails the build."""
    here = os.path.dirname(page.file.abs_src_path)
    tree = os.path.dirname(config.config_file_path)

    def link(found):
        target = os.path.normpath(os.path.join(here, found[1]))
        if not os.path.exists(target):
            log.warning("%s links to %s, which is not there", page.file.src_path, found[1])
        kind = "tree" if os.path.isdir(target) else "blob"
        return f"]({config.repo_url}/{kind}/main/{os.path.relpath(target, tree)}{found[2]})"

    directories = "|".join(re.escape(d.name) for d in os.scandir(config.docs_dir) if d.is_dir())
    return re.sub(rf"\]\((\.\./[^)#]+|(?:{directories})/?(?=[)#]))(#[^)]*)?\)", lambda m: link([m[0], m[1], m[2] or ""]), markdown)
