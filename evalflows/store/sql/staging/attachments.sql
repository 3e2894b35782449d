-- one row per attachment_id: a picture, a sound or a PDF of examples; `content` is base64
select * from source.attachments
